// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Times algorithms of products by the host's clock, around enough calls to take
// some milliseconds. Operands lie in memory that is freed before the program
// allocates its own.
#include "runtime/cuda/product_tuning.h"
#include "runtime/abi/cuda_scratch.h"
#include "runtime/abi/element_type.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"
#include "runtime/support/new_file.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <sys/stat.h>

namespace fsdpc::runtime {

namespace {

constexpr char firstLine[] = "fsdpc products 1";
constexpr size_t mostBytes = size_t(16) << 20; // of a file that is read
constexpr double enoughSeconds = 5e-3;         // of one measurement
constexpr int rounds = 3, mostCalls = 64;
constexpr double gain = 0.02; // that another algorithm must have

// A product's plan and memory, which end with the scope.
struct Operands {
  explicit Operands(CudaContext &context) : context(context) {}
  ~Operands() {
    if (gemm)
      context.api.destroyGemm(gemm);
    if (memory)
      context.api.freeDevice(memory);
  }
  Operands(const Operands &) = delete;

  CudaContext &context;
  CudaGemm gemm = nullptr;
  void *memory = nullptr;
  CudaGemmOperands of;
  void *workspace = nullptr;
};

// Returns the bytes from the first to the last element of an operand.
size_t bytesOf(const CudaGemmShape &s, const std::string &dtype, int64_t rows,
               int64_t columns, int64_t lead, int64_t stride) {
  return size_t((s.count - 1) * stride + (rows - 1) * lead + columns) *
         dtypeBytes(dtype);
}

// Returns the bytes of the second result.
size_t extraBytes(const CudaGemmShape &s) {
  return s.epilogue == "sum_lhs"   ? size_t(s.m) * dtypeBytes(s.dtypeC)
         : s.epilogue == "sum_rhs" ? size_t(s.n) * dtypeBytes(s.dtypeC)
                                   : 0;
}

// Allocates a product's operands. Returns false if there is no room.
bool allocate(const CudaGemmShape &s, Operands &operands) {
  size_t whole = bytesOf(s, s.dtypeC, s.m, s.n, s.ldc, s.strideC);
  bool hasInput = s.epilogue == "gelu_extra" || s.epilogue == "gelu_grad";
  size_t sizes[] = {bytesOf(s, s.dtypeA, s.transposeA ? s.k : s.m,
                            s.transposeA ? s.m : s.k, s.lda, s.strideA),
                    bytesOf(s, s.dtypeB, s.transposeB ? s.n : s.k,
                            s.transposeB ? s.k : s.n, s.ldb, s.strideB),
                    s.bias ? size_t(s.n) * dtypeBytes(s.dtypeC) : 0,
                    s.addend ? whole : 0,
                    hasInput ? whole : extraBytes(s),
                    whole,
                    size_t(libraryWorkspaceBytes)};
  int64_t total = 0, places[std::size(sizes)];
  for (size_t i = 0; i < std::size(sizes); ++i) {
    places[i] = alignedPlace(total, int64_t(sizes[i]));
    total = places[i] + int64_t(sizes[i]);
  }
  CudaApi &api = operands.context.api;
  if (api.allocateDevice(operands.memory, size_t(total)) != cudaOk) {
    operands.memory = nullptr;
    return false;
  }
  auto at = [&](int i) -> char * {
    return sizes[i] ? static_cast<char *>(operands.memory) + places[i]
                    : nullptr;
  };
  bool isGradient = s.epilogue == "gelu_grad";
  operands.of = {at(0),
                 at(1),
                 at(5),
                 at(2),
                 at(3),
                 isGradient ? at(4) : nullptr,
                 isGradient ? nullptr : at(4)};
  operands.workspace = at(6);
  // Small numbers in every type: 0.0115 in bf16 and f32.
  operands.context.check(
      api.fill(operands.memory, 0x3c, size_t(total),
               operands.context.streams[FSDPC_STREAM_COMPUTE]));
  return true;
}

// Sets `seconds` to the time of one call of the plan as it is.
CudaStatus measure(Operands &operands, double &seconds) {
  CudaApi &api = operands.context.api;
  CudaStream stream = operands.context.streams[FSDPC_STREAM_COMPUTE];
  auto timed = [&](int calls, double &each) -> CudaStatus {
    auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i)
      if (CudaStatus status =
              api.gemm(operands.gemm, operands.of, operands.workspace, stream))
        return status;
    if (CudaStatus status = api.synchronizeStream(stream))
      return status;
    std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - began;
    each = took.count() / calls;
    return cudaOk;
  };
  // The first call loads the kernel; the second says how many calls to time.
  double once = 0;
  for (int i = 0; i < 2; ++i)
    if (CudaStatus status = timed(1, once))
      return status;
  int calls = int(
      std::clamp(enoughSeconds / std::max(once, 1e-9), 1.0, double(mostCalls)));
  seconds = once;
  for (int round = 0; round < rounds; ++round) {
    double each = 0;
    if (CudaStatus status = timed(calls, each))
      return status;
    seconds = round == 0 ? each : std::min(seconds, each);
  }
  return cudaOk;
}

// Times what the library lists for a shape. Leaves `tuned` without a code if
// there is nothing to choose.
CudaStatus tuneOne(CudaContext &context, const CudaGemmShape &shape,
                   bool roundsParts, TunedProduct &tuned) {
  constexpr auto cap = size_t(libraryWorkspaceBytes);
  Operands operands(context);
  CudaChoice choice;
  CudaStatus status = context.api.planGemm(shape, cap, operands.gemm, choice);
  if (status == cudaRefused)
    return cudaOk;
  std::vector<std::string> codes;
  if (!status)
    status = context.api.listGemms(operands.gemm, cap, tunedCandidates,
                                   roundsParts, codes);
  if (status || codes.empty() || !allocate(shape, operands))
    return status;
  std::vector<double> seconds;
  for (const std::string &code : codes) {
    seconds.push_back(std::numeric_limits<double>::infinity());
    status =
        context.api.chooseGemm(operands.gemm, cap, roundsParts, code, choice);
    if (status == cudaRefused)
      continue;
    if (!status)
      status = measure(operands, seconds.back());
    if (status)
      return status;
  }
  size_t best = fastest(seconds);
  if (!std::isfinite(seconds[best]))
    return cudaOk;
  // Without a time of the first algorithm, which the library may list and then
  // refuse, nothing is known to be gained. A table has finite times only.
  double before = std::isfinite(seconds[0]) ? seconds[0] : seconds[best];
  tuned = {codes[best], seconds[best] * 1e6, before * 1e6};
  return cudaOk;
}

// Returns the table of a file, or an empty one with a warning if it has none. A
// file that does not exist yet is no reason for one.
TunedTable readTable(const std::string &file) {
  struct stat found;
  if (stat(file.c_str(), &found) != 0)
    return {};
  std::string problem = "is no file of at most 16 MiB";
  if (S_ISREG(found.st_mode) && size_t(found.st_size) <= mostBytes) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    Result<TunedTable> table = parseTable(text.str());
    if (table)
      return std::move(*table);
    problem = table.error().message;
  }
  printWarning("--tune-products: '" + file + "' " + problem +
               "; it is ignored and written anew");
  return {};
}

Status writeTable(const std::string &file, const TunedTable &table) {
  std::string text = tableText(table);
  NewFile written;
  FSDPC_TRY(written.open(file));
  FSDPC_TRY(written.write(0, text.data(), text.size()));
  return written.commit();
}

// Gives every rank the first one's text.
void share(Job &job, std::string &text) {
  uint64_t size = text.size();
  OwnedValues length = {&size, sizeof size, 0};
  job.channel[controlChannel]->shareOwned({&length, 1});
  text.resize(size);
  if (size == 0)
    return;
  OwnedValues values = {text.data(), text.size(), 0};
  job.channel[controlChannel]->shareOwned({&values, 1});
}

std::string prefixOf(const CudaDeviceInfo &info, bool roundsParts) {
  return info.name + "\t" + (roundsParts ? "any" : "f32") + "\t";
}

// Returns true if the library takes a choice of the file. It takes none of
// another version of it, and none that adds parts in a way that is not allowed.
bool isTaken(CudaContext &context, const CudaGemmShape &shape, bool roundsParts,
             const std::string &code) {
  constexpr auto cap = size_t(libraryWorkspaceBytes);
  Operands operands(context);
  CudaChoice choice;
  return context.api.planGemm(shape, cap, operands.gemm, choice) == cudaOk &&
         context.api.chooseGemm(operands.gemm, cap, roundsParts, code,
                                choice) == cudaOk;
}

// The first rank's part: completes the table and the file, and counts in
// `known` the choices that it takes from there. What fails reaches all ranks as
// text.
Status complete(CudaContext &context, const std::vector<CudaGemmShape> &shapes,
                const std::string &file, const std::string &prefix,
                bool deterministic, TunedTable &table, size_t &known) {
  bool grown = false;
  for (const CudaGemmShape &shape : shapes) {
    std::string key = prefix + keyOf(shape);
    auto kept = table.find(key);
    if (kept != table.end() &&
        isTaken(context, shape, !deterministic, kept->second.code)) {
      ++known;
      continue;
    }
    TunedProduct tuned;
    if (CudaStatus status = tuneOne(context, shape, !deterministic, tuned))
      return runError("--tune-products: timing the product " + keyOf(shape) +
                      " failed: " + context.api.errorText(status));
    if (tuned.code.empty())
      continue;
    table[key] = std::move(tuned);
    grown = true;
  }
  if (!grown)
    return {};
  Status written = writeTable(file, table);
  if (written || deterministic)
    return written;
  printWarning("--tune-products: " + written.error().message +
               "; the next run times its products again");
  return {};
}

} // namespace

std::string keyOf(const CudaGemmShape &s) {
  std::ostringstream key;
  key << s.m << " " << s.n << " " << s.k << " " << (s.transposeA ? "t" : "n")
      << (s.transposeB ? "t" : "n");
  for (int64_t number :
       {s.lda, s.ldb, s.ldc, s.count, s.strideA, s.strideB, s.strideC})
    key << " " << number;
  key << " " << s.dtypeA << " " << s.dtypeB << " " << s.dtypeC
      << (s.beta != 0 ? " +" : "") << (s.bias ? " bias" : "")
      << (s.addend ? " addend" : "");
  if (!s.epilogue.empty())
    key << " " << s.epilogue;
  return key.str();
}

size_t fastest(const std::vector<double> &seconds) {
  size_t best = 0;
  for (size_t i = 1; i < seconds.size(); ++i)
    if (seconds[i] < seconds[best])
      best = i;
  return seconds[best] <= (1 - gain) * seconds[0] ? best : 0;
}

std::string tableText(const TunedTable &table) {
  std::ostringstream text;
  text << firstLine << "\n";
  for (const auto &[key, tuned] : table)
    text << key << "\t" << tuned.code << "\t" << tuned.microseconds << "\t"
         << tuned.before << "\n";
  return text.str();
}

Result<TunedTable> parseTable(const std::string &text) {
  std::istringstream lines(text);
  std::string line;
  if (text.empty() || text.back() != '\n' || !std::getline(lines, line) ||
      line != firstLine)
    return inputError("does not begin with '" + std::string(firstLine) +
                      "', or does not end with a line");
  TunedTable table;
  for (int number = 2; std::getline(lines, line); ++number) {
    std::vector<std::string> fields;
    std::istringstream parts(line);
    for (std::string part; std::getline(parts, part, '\t');)
      fields.push_back(part);
    auto isTime = [](const std::string &field) {
      char *end = nullptr;
      double value = strtod(field.c_str(), &end);
      return !field.empty() && !*end && std::isfinite(value) && value >= 0;
    };
    bool good = fields.size() == 6 && !fields[0].empty() &&
                (fields[1] == "any" || fields[1] == "f32") &&
                !fields[2].empty() && !fields[3].empty() && isTime(fields[4]) &&
                isTime(fields[5]);
    if (!good)
      return inputError(concat("has no choice in line ", number));
    table[fields[0] + "\t" + fields[1] + "\t" + fields[2]] = {
        fields[3], strtod(fields[4].c_str(), nullptr),
        strtod(fields[5].c_str(), nullptr)};
  }
  // Refuses other spellings of numbers, other orders and what stands twice.
  if (tableText(table) != text)
    return inputError("is not as it was written");
  return table;
}

Result<TunedProducts> tuneProducts(CudaContext &context,
                                   const std::vector<CudaGemmShape> &shapes,
                                   const std::string &file,
                                   bool deterministic) {
  CudaDeviceInfo info;
  if (CudaStatus status = context.api.deviceInfo(info))
    return runError("cannot describe the GPU: " +
                    context.api.errorText(status));
  std::string prefix = prefixOf(info, !deterministic), text;
  size_t known = 0;
  auto began = std::chrono::steady_clock::now();
  if (context.job.rank == 0) {
    TunedTable table = readTable(file);
    Status status =
        complete(context, shapes, file, prefix, deterministic, table, known);
    // Errors travel as a text that is no table.
    text = status ? tableText(table) : status.error().message;
  }
  share(context.job, text);
  Result<TunedTable> table = parseTable(text);
  if (!table)
    return runError(text);
  TunedProducts tuned;
  double before = 0, after = 0;
  // A rank on another kind of device than the first finds nothing, and keeps
  // the library's own choices.
  for (const CudaGemmShape &shape : shapes) {
    auto found = table->find(prefix + keyOf(shape));
    if (found == table->end())
      continue;
    tuned.codes[keyOf(shape)] = found->second.code;
    before += found->second.before, after += found->second.microseconds;
  }
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  char line[200];
  snprintf(line, sizeof line,
           "%zu shapes of products tuned (%zu from '%.80s', %.1f s): one call "
           "of each takes %.0f us, with the library's own choices %.0f",
           tuned.codes.size(), known, file.c_str(), took.count(), after,
           before);
  tuned.notes.push_back(line);
  return tuned;
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank's use of the real table, from the choice of a device to the end of
// its communicators, on the stand-ins of the vendor's libraries.
//
// usage: vendor_rank [N | threads]
//
// With "threads", a rank on each device runs at the same time as the others,
// each beside a thread that asks for its communicator's state, as the watchdog
// does; for the thread sanitizer. Without an argument every call succeeds, and
// the program prints one line per call of a library: its name. With N, call N
// fails; the program then prints the error that the table reports, or "none".
// Exit code 1: a rule of the vendor's documents was broken, or something was
// left behind.
#include "runtime/cuda/kernels/own.h"
#include "runtime/cuda/real_api.h"
#include "tests/runtime/cuda/vendor/cudart_state.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

namespace fsdpc::runtime {

// The kernels themselves never run, so their addresses need not be theirs.
static char places[OwnKernels::count];
static OwnTable<const void *> makeKernels() {
  OwnTable<const void *> kernels;
  for (size_t i = 0; i < kernels.size(); ++i)
    kernels[i] = &places[i];
  return kernels;
}
const OwnTable<const void *> ownKernels = makeKernels();

namespace {

#define TRY(call)                                                              \
  do                                                                           \
    if (CudaStatus status = (call))                                            \
      return status;                                                           \
  while (false)

constexpr size_t megabyte = size_t(1) << 20;
constexpr size_t cap = size_t(32) << 20;

// Undoes what a rank has made, in the reverse order. Keeps the first error.
class Undo {
public:
  void add(const std::function<CudaStatus()> &step) { steps.push_back(step); }
  CudaStatus run() {
    CudaStatus first = cudaOk;
    for (; !steps.empty(); steps.pop_back())
      if (CudaStatus status = steps.back()(); status && !first)
        first = status;
    return first;
  }

private:
  std::vector<std::function<CudaStatus()>> steps;
};

class Rank {
public:
  // `watched`: another thread asks for the communicator's state meanwhile.
  CudaStatus run(int device, bool watched = false);
  // Ends in good order, or aborts first, as the watchdog of a failed rank does.
  CudaStatus end(bool failed) {
    CudaStatus aborted = cudaOk;
    for (CudaCommunicator each : {communicator, group, across})
      if (CudaStatus status =
              failed && each ? api.abortCommunicator(each) : cudaOk)
        aborted = status;
    CudaStatus ended = undo.run();
    return aborted ? aborted : ended;
  }

private:
  CudaStatus prepare(int device);
  CudaStatus launchKernels();
  CudaStatus multiply(const CudaGemmShape &shape, size_t offset);
  CudaStatus convolve();
  CudaStatus attend(bool backward);
  CudaStatus captureStep();
  CudaStatus join();
  CudaStatus split(CudaCommunicator &part, int color);
  CudaStatus communicate();
  CudaStatus communicateWithOwners();
  // Waits until a communicator's last call is done.
  CudaStatus settle(CudaCommunicator made);

  char *at(size_t offset) { return static_cast<char *>(memory) + offset; }
  char *workspace() { return at(24 * megabyte); }

  CudaApi &api = cudaApi();
  Undo undo;
  void *memory = nullptr, *pinned = nullptr; // 32 MiB each
  void *spare = nullptr;                     // 1 MiB
  CudaStream compute = nullptr, reduce = nullptr;
  CudaEvent forked = nullptr, joined = nullptr;
  CudaFunction kernel = nullptr;
  CudaCommunicator communicator = nullptr;
  CudaCommunicator group = nullptr, across = nullptr; // split from it
  bool isWatched = false;
  std::atomic<bool> watchEnds = false;
  std::thread watch;
};

CudaStatus Rank::prepare(int device) {
  int count = 0;
  TRY(api.deviceCount(count));
  TRY(api.selectDevice(device));
  CudaDeviceInfo info;
  TRY(api.deviceInfo(info));
  fsdpc_program program = {};
  program.device_code = "code";
  TRY(api.loadProgram(program));
  TRY(api.loadProgram(program)); // as the next rank of the process does
  int version = 0;
  TRY(api.ncclVersion(version));
  if (version < 22800)
    return cudaRefused;
  TRY(api.allocateDevice(spare, megabyte)); // as where NCCL allocates nothing
  undo.add([this] { return api.freeDevice(spare); });
  TRY(api.allocateShared(memory, 32 * megabyte));
  undo.add([this] { return api.freeShared(memory); });
  TRY(api.allocatePinned(pinned, 32 * megabyte));
  undo.add([this] { return api.freePinned(pinned); });
  for (CudaStream *stream : {&compute, &reduce}) {
    TRY(api.createStream(*stream, stream == &reduce));
    undo.add([this, stream] { return api.destroyStream(*stream); });
  }
  for (CudaEvent *event : {&forked, &joined}) {
    TRY(api.createEvent(*event));
    undo.add([this, event] { return api.destroyEvent(*event); });
  }
  return cudaOk;
}

CudaStatus Rank::launchKernels() {
  fsdpc_kernel known = {};
  known.name = "kernel";
  TRY(api.findKernel(known, kernel));
  void *buffers[] = {at(0), at(4096)};
  api.beginRange("microbatch");
  TRY(api.launch(kernel, 132, 256, buffers, 2, compute));
  api.endRange();
  // Refused by the table itself, since the parameters would exceed 4 KiB.
  if (!api.launch(kernel, 132, 256, buffers, 1000, compute))
    return cudaRefused;
  Cast cast;
  return api.launchOwn(OwnKernels::numberOf<Cast>(), 64, &cast, sizeof cast,
                       compute);
}

// Operands lie `offset` bytes behind aligned places.
CudaStatus Rank::multiply(const CudaGemmShape &shape, size_t offset) {
  CudaGemm gemm = nullptr;
  CudaChoice choice;
  TRY(api.planGemm(shape, cap, gemm, choice));
  Undo own;
  own.add([&] { return api.destroyGemm(gemm); });
  CudaGemmOperands of = {at(offset), at(4 * megabyte + offset),
                         at(12 * megabyte + offset)};
  if (shape.bias)
    of.bias = at(8 * megabyte + offset);
  if (shape.addend)
    of.addend = at(9 * megabyte + offset);
  if (shape.epilogue == "gelu_grad")
    of.input = at(10 * megabyte);
  else if (shape.epilogue == "gelu_extra")
    of.extra = at(10 * megabyte);
  else if (!shape.epilogue.empty())
    of.extra = at(10 * megabyte + offset);
  auto call = [&] { return api.gemm(gemm, of, workspace(), compute); };
  // The heuristic's first algorithm, then each that it lists.
  auto tryAll = [&]() -> CudaStatus {
    TRY(call());
    std::vector<std::string> codes;
    TRY(api.listGemms(gemm, cap, 8, !shape.bias, codes));
    if (codes.size() != (shape.bias ? 2 : 3))
      return cudaRefused;
    for (const std::string &code : codes) {
      TRY(api.chooseGemm(gemm, cap, !shape.bias, code, choice));
      TRY(call());
    }
    return cudaOk;
  };
  CudaStatus status = tryAll();
  CudaStatus ended = own.run();
  return status ? status : ended;
}

CudaGemmShape shapeOf(const char *type, const char *result) {
  CudaGemmShape shape;
  shape.m = 64, shape.n = 96, shape.k = 32;
  shape.lda = 32, shape.ldb = 96, shape.ldc = 96;
  shape.dtypeA = shape.dtypeB = type;
  shape.dtypeC = result;
  return shape;
}

ConvolutionPlan convolutionOf(const char *kind, const char *dtype) {
  ConvolutionPlan plan;
  plan.kind = kind, plan.dtype = dtype;
  plan.batch = 2, plan.channels = 8, plan.height = plan.width = 8;
  plan.filters = 16, plan.kernelHeight = plan.kernelWidth = 3;
  plan.outHeight = plan.outWidth = 8, plan.groups = 1;
  plan.strides = plan.dilations = plan.padsBegin = plan.padsEnd = {1, 1};
  return plan;
}

CudaStatus Rank::convolve() {
  for (const char *kind : {"forward", "input", "weight"}) {
    CudaConvolution convolution = nullptr;
    CudaChoice choice;
    TRY(api.planConvolution(convolutionOf(kind, kind[0] == 'f'   ? "bf16"
                                                : kind[0] == 'i' ? "f16"
                                                                 : "f32"),
                            cap, kind[0] != 'i', convolution, choice));
    Undo own;
    own.add([&] { return api.destroyConvolution(convolution); });
    CudaStatus status = api.convolution(convolution, at(0), at(megabyte),
                                        at(2 * megabyte), workspace(), compute);
    CudaStatus ended = own.run();
    if (status || ended)
      return status ? status : ended;
  }
  return cudaOk;
}

AttentionPlan attentionOf(bool backward) {
  AttentionPlan plan;
  plan.batch = 2, plan.heads = 4, plan.groups = 4;
  plan.queries = plan.keys = 128, plan.width = plan.valueWidth = 64;
  plan.scale = 0.125, plan.causal = true;
  plan.dtype = backward ? "f16" : "bf16";
  plan.backward = backward;
  plan.strideQuery = plan.strideKey = plan.strideValue = plan.strideDQuery =
      plan.strideDKey = plan.strideDValue = plan.strideOutput =
          plan.strideGrad = {128 * 256, 64, 256};
  return plan;
}

CudaStatus Rank::attend(bool backward) {
  CudaAttention attention = nullptr;
  CudaChoice choice;
  TRY(api.planAttention(attentionOf(backward), true, attention, choice));
  Undo own;
  own.add([&] { return api.destroyAttention(attention); });
  const void *operands[10];
  for (size_t i = 0; i < 10; ++i)
    operands[i] = at(i * megabyte);
  CudaStatus status = api.attention(attention, operands, workspace(), compute);
  CudaStatus ended = own.run();
  return status ? status : ended;
}

// A capture that forks from the compute stream and joins it again.
CudaStatus Rank::captureStep() {
  void *buffers[] = {at(0)};
  CudaGraph graph = nullptr;
  TRY(api.beginCapture(compute));
  Undo capture; // a capture that is begun must be ended
  capture.add([&] { return api.endCapture(compute, graph); });
  auto enqueue = [&]() -> CudaStatus {
    TRY(api.recordEvent(forked, compute));
    TRY(api.waitEvent(reduce, forked));
    TRY(api.launch(kernel, 1, 32, buffers, 1, compute));
    TRY(api.allGather(communicator, at(0), at(megabyte), 4096, reduce));
    // A piece of what is offloaded comes and goes.
    TRY(api.copy(at(2 * megabyte), pinned, 4096, reduce));
    TRY(api.copy(pinned, at(2 * megabyte), 4096, reduce));
    TRY(api.recordEvent(joined, reduce));
    return api.waitEvent(compute, joined);
  };
  CudaStatus status = enqueue();
  CudaStatus ended = capture.run();
  if (graph)
    undo.add([this, graph] { return api.destroyGraph(graph); });
  if (status || ended)
    return status ? status : ended;
  TRY(api.launchGraph(graph, compute));
  TRY(api.copy(pinned, at(0), 4096, compute));
  TRY(api.fill(at(0), 0, 4096, compute));
  CudaEvent done = nullptr;
  TRY(api.createEvent(done));
  undo.add([this, done] { return api.destroyEvent(done); });
  TRY(api.recordEvent(done, compute));
  for (bool reached = false; !reached;)
    TRY(api.queryEvent(done, reached));
  return api.synchronizeStream(compute);
}

CudaStatus Rank::settle(CudaCommunicator made) {
  CudaStatus status;
  while ((status = api.communicatorState(made)) == cudaInProgress)
    ;
  return status;
}

// As a rank joins its group, and the ranks with its place in the others.
CudaStatus Rank::split(CudaCommunicator &part, int color) {
  TRY(api.splitCommunicator(part, communicator, color));
  undo.add([this, &part] { return api.destroyCommunicator(part); });
  return settle(part);
}

CudaStatus Rank::join() {
  NcclId id = {};
  TRY(api.makeNcclId(id));
  NcclConfig config;
  config.maxCtas = 16;
  config.zeroCtas = true;
  TRY(api.initCommunicator(communicator, 0, 2, id, config));
  undo.add([this] { return api.destroyCommunicator(communicator); });
  if (isWatched) {
    watch = std::thread([this] {
      while (!watchEnds)
        api.communicatorState(communicator);
    });
    undo.add([this] {
      watchEnds = true;
      watch.join();
      return cudaOk;
    });
  }
  TRY(settle(communicator));
  TRY(split(group, 0));
  return split(across, 1);
}

CudaStatus Rank::communicateWithOwners() {
  TRY(api.groupBegin());
  auto enqueue = [&]() -> CudaStatus {
    TRY(api.reduce(communicator, at(0), at(megabyte), 1024, WireType::f32, 0,
                   reduce));
    TRY(api.reduce(communicator, at(4096), nullptr, 1024, WireType::bf16, 1,
                   reduce));
    return api.broadcast(communicator, at(0), 4000, 1, reduce);
  };
  CudaStatus status = enqueue();
  CudaStatus ended = api.groupEnd();
  return status ? status : ended;
}

CudaStatus Rank::communicate() {
  void *registration = nullptr, *window = nullptr;
  TRY(api.registerWindow(communicator, memory, 32 * megabyte, window));
  undo.add(
      [this, window] { return api.deregisterWindow(communicator, window); });
  TRY(api.registerMemory(group, memory, 32 * megabyte, registration));
  undo.add([this, registration] {
    return api.deregisterMemory(group, registration);
  });
  TRY(api.deregisterMemory(communicator, nullptr)); // nothing to undo
  TRY(api.allGather(communicator, at(0), at(0), 4096, reduce));
  for (WireType type : {WireType::f32, WireType::bf16, WireType::f16})
    TRY(api.reduceScatter(communicator, at(0), at(megabyte), 1024, type,
                          reduce));
  TRY(api.groupBegin());
  CudaStatus status = api.send(communicator, at(0), 4096, 1, reduce);
  if (!status)
    status = api.receive(communicator, at(megabyte), 4096, 1, reduce);
  CudaStatus ended = api.groupEnd();
  if (status || ended)
    return status ? status : ended;
  TRY(api.groupBegin()); // without calls, as on a single rank
  TRY(api.groupEnd());
  TRY(api.allGather(group, at(0), at(megabyte), 4096, reduce));
  TRY(api.allReduce(across, reinterpret_cast<float *>(at(0)), 1024, reduce));
  return communicateWithOwners();
}

CudaStatus Rank::run(int device, bool watched) {
  isWatched = watched;
  TRY(prepare(device));
  TRY(launchKernels());
  CudaGemmShape biased = shapeOf("bf16", "bf16");
  biased.bias = true;
  TRY(multiply(biased, 0));
  TRY(multiply(biased, 2)); // as narrow as its elements
  TRY(multiply(shapeOf("f16", "f32"), 0));
  CudaGemmShape turned = shapeOf("f32", "f32");
  turned.transposeA = turned.transposeB = true;
  turned.lda = 64, turned.ldb = 32, turned.beta = 1;
  turned.count = 3, turned.strideA = 64 * 32, turned.strideB = 32 * 96;
  turned.strideC = 64 * 96;
  TRY(multiply(turned, 0));
  TRY(multiply(shapeOf("f64", "f64"), 0));
  for (const char *epilogue :
       {"", "gelu", "gelu_extra", "gelu_grad", "sum_lhs", "sum_rhs"}) {
    CudaGemmShape fused = shapeOf("bf16", "bf16");
    fused.epilogue = epilogue;
    fused.addend = fused.epilogue.empty();
    TRY(multiply(fused, 0));
    TRY(multiply(fused, 2));
    fused.bias = true; // of the same sums, where GELU follows
    if (fused.epilogue.starts_with("gelu") && fused.epilogue != "gelu_grad")
      TRY(multiply(fused, 0));
  }
  TRY(join());
  TRY(communicate());
  TRY(captureStep());
  TRY(convolve());
  TRY(attend(false));
  return attend(true);
}

// Tries calls that the table must refuse before it asks a library. Returns
// those that it accepted.
std::string wronglyAccepted() {
  CudaApi &api = cudaApi();
  void *handle = nullptr;
  CudaChoice choice;
  std::string accepted;
  auto expectRefused = [&](CudaStatus status, const char *what) {
    if (status != cudaRefused || choice.algorithm.empty())
      accepted += std::string(what) + "; ";
    choice = {};
  };
  expectRefused(api.planGemm(shapeOf("i64", "f32"), cap, handle, choice),
                "a product of whole numbers");
  expectRefused(api.planGemm(shapeOf("bf16", "f64"), cap, handle, choice),
                "a product that the library does not support");
  expectRefused(api.planConvolution(convolutionOf("forward", "f64"), cap, false,
                                    handle, choice),
                "a convolution in f64");
  std::vector<std::string> codes;
  if (!api.planGemm(shapeOf("f32", "f32"), cap, handle, choice) &&
      !api.listGemms(handle, cap, 3, true, codes) && codes.size() == 3) {
    expectRefused(api.chooseGemm(handle, cap, false, codes[2], choice),
                  "sums of rounded parts where none may be");
    std::string other = codes[0], spoilt = codes[0];
    other[0] ^= 1; // of another version
    spoilt.back() = 'x';
    std::string zeros = codes[0];
    std::fill(zeros.begin() + ptrdiff_t(zeros.find(':') + 1), zeros.end(), '0');
    for (const std::string &code : {other, spoilt, zeros, std::string()})
      expectRefused(api.chooseGemm(handle, cap, true, code, choice),
                    "the code of no algorithm");
    expectRefused(api.chooseGemm(handle, 1024, true, codes[0], choice),
                  "an algorithm with too large a workspace");
    api.destroyGemm(handle);
  } else {
    accepted += "no list of algorithms; ";
  }
  AttentionPlan plan = attentionOf(false);
  plan.dtype = "f32";
  expectRefused(api.planAttention(plan, false, handle, choice),
                "f32 attention");
  plan = attentionOf(false);
  plan.dtypeMask = "f32";
  expectRefused(api.planAttention(plan, false, handle, choice), "a mask");
  plan = attentionOf(false);
  plan.strideKey[2] += 4;
  expectRefused(api.planAttention(plan, false, handle, choice),
                "rows of keys at addresses that are not multiples of 16");
  plan = attentionOf(false);
  plan.queries = 256;
  expectRefused(api.planAttention(plan, false, handle, choice),
                "queries without a key");
  return accepted;
}

// Returns the codes of the table that are not explained in one line.
std::string unexplained() {
  std::string codes;
  for (int code : {int(cudaRefused), int(cudaInProgress), 2, 35, 100, 209,
                   cublasCodes + 13, cudnnCodes + 5000, cudnnGraphCodes + 1,
                   ncclCodes + 3}) {
    std::string text = cudaApi().errorText(code);
    if (text.empty() || text.find('\n') != text.npos)
      codes += std::to_string(code) + "; ";
  }
  return cudaApi().label().empty() ? codes : codes + "a label; ";
}

// Prints what was done against the rules. Returns true if that is nothing.
bool keptRules() {
  for (const std::string &rule : vendor::brokenRules())
    fprintf(stderr, "broken rule: %s\n", rule.c_str());
  return vendor::brokenRules().empty();
}

int runThreads() {
  vendor::restart(0);
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int device = 0; device < vendor::devices; ++device)
    threads.emplace_back([&, device] {
      Rank rank;
      CudaStatus status = rank.run(device, /*watched=*/true);
      CudaStatus ended = rank.end(/*failed=*/status != cudaOk);
      failed += status || ended;
    });
  for (std::thread &thread : threads)
    thread.join();
  return keptRules() && !failed ? 0 : 1;
}

int main(int failing) {
  vendor::restart(failing);
  Rank rank;
  CudaStatus status = rank.run(/*device=*/1);
  CudaStatus ended = rank.end(/*failed=*/status != cudaOk);
  std::vector<std::string> calls = vendor::calls();
  std::string accepted = failing ? "" : wronglyAccepted();
  std::string obscure = failing ? "" : unexplained();
  if (!status)
    status = ended;
  std::string error = status ? cudaApi().errorText(status) : "none";
  if (failing)
    printf("%s\n", error.c_str());
  else
    for (const std::string &call : calls)
      printf("%s\n", call.c_str());
  std::string alive = vendor::aliveInCudart() + vendor::aliveInCublas() +
                      vendor::aliveInCudnn() + vendor::aliveInNccl();
  bool kept = keptRules();
  if (!alive.empty())
    fprintf(stderr, "left behind: %s\n", alive.c_str());
  if (!accepted.empty())
    fprintf(stderr, "accepted: %s\n", accepted.c_str());
  if (!obscure.empty())
    fprintf(stderr, "not explained: %s\n", obscure.c_str());
  if (!failing && status)
    fprintf(stderr, "failed: %s\n", error.c_str());
  bool sound = kept && alive.empty() && accepted.empty() && obscure.empty() &&
               (failing || !status);
  return sound ? 0 : 1;
}

} // namespace
} // namespace fsdpc::runtime

int main(int count, char **words) {
  for (const void *kernel : fsdpc::runtime::ownKernels)
    fsdpc::vendor::addKernel(kernel);
  if (count > 1 && !strcmp(words[1], "threads"))
    return fsdpc::runtime::runThreads();
  return fsdpc::runtime::main(count > 1 ? atoi(words[1]) : 0);
}

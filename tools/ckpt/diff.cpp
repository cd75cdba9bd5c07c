// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc ckpt diff`: compares the tensors of two checkpoints or files by name,
// whatever ranks and layouts they are stored under. Tensors are read side by
// side in pieces.
#include "runtime/abi/memory_plan.h"
#include "runtime/data/sample_file.h"
#include "runtime/numeric/dtype.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_text.h"
#include "runtime/support/spelling.h"
#include "tools/ckpt/commands.h"
#include "tools/ckpt/source.h"

#include <cmath>
#include <cstring>
#include <map>

namespace fsdpc::ckpt {

using namespace runtime;
using Json = nlohmann::ordered_json;

namespace {

// Says how two tensors of one name differ. `relative` is |a - b| / max(|a|,
// |b|), the largest over the elements.
struct Difference {
  int64_t elements = 0; // that differ by more than the tolerances
  double absolute = 0, relative = 0;
};

// Doubles hold every value of the types but large 64-bit integers, for which
// the bytes decide.
std::vector<double> toDoubles(const char *from, const std::string &dtype,
                              size_t count) {
  std::vector<double> values(count);
  if (dtype == "f64") {
    std::memcpy(values.data(), from, count * sizeof(double));
  } else if (isFloat(dtype)) {
    std::vector<float> floats(count);
    runtime::convert(from, dtype, floats.data(), "f32", int64_t(count));
    std::copy(floats.begin(), floats.end(), values.begin());
  } else {
    std::vector<int64_t> integers(count);
    runtime::convert(from, dtype == "i1" ? "u8" : dtype, integers.data(), "i64",
                     int64_t(count));
    for (size_t i = 0; i < count; ++i)
      values[i] = double(integers[i]);
  }
  return values;
}

// Compares tensors in pieces, so memory does not grow with their size. Equal
// bytes are skipped before anything is converted, the common case.
class Comparison {
public:
  Comparison(const TensorSource &a, const TensorSource &b,
             const Arguments &arguments)
      : a(a), b(b), arguments(arguments) {}

  // Compares tensor i of `a` with tensor j of `b`, which has the same shape.
  Status compare(size_t i, size_t j, Difference &found) const {
    const std::string &typeA = a.tensors()[i].dtype,
                      &typeB = b.tensors()[j].dtype;
    uint64_t widthA = uint64_t(dtypeBytes(typeA)),
             widthB = uint64_t(dtypeBytes(typeB));
    uint64_t elements = a.tensors()[i].bytes / widthA;
    // A piece has room for elements of 8 bytes, the widest type.
    constexpr uint64_t most = pieceBytes / 8;
    std::vector<char> pieceA(most * widthA), pieceB(most * widthB);
    for (uint64_t at = 0; at < elements; at += most) {
      uint64_t count = std::min(most, elements - at);
      FSDPC_TRY(a.read(i, at * widthA, pieceA.data(), count * widthA));
      FSDPC_TRY(b.read(j, at * widthB, pieceB.data(), count * widthB));
      if (typeA == typeB &&
          std::memcmp(pieceA.data(), pieceB.data(), count * widthA) == 0)
        continue;
      auto x = toDoubles(pieceA.data(), typeA, count);
      auto y = toDoubles(pieceB.data(), typeB, count);
      for (size_t k = 0; k < count; ++k)
        add(x[k], y[k],
            typeA == typeB && std::memcmp(&pieceA[k * widthA],
                                          &pieceB[k * widthA], widthA) == 0,
            found);
    }
    return {};
  }

private:
  // Without tolerances other bits differ, also 0 and -0.
  void add(double x, double y, bool sameBits, Difference &found) const {
    if (sameBits || (std::isnan(x) && std::isnan(y)))
      return;
    double distance = x == y ? 0 : std::fabs(x - y);
    double size = std::max(std::fabs(x), std::fabs(y));
    double ratio = distance == 0 ? 0 : distance / size;
    if (!(distance < INFINITY)) // one of them is infinite or NaN
      distance = ratio = INFINITY;
    found.absolute = std::max(found.absolute, distance);
    found.relative = std::max(found.relative, ratio);
    bool strict = arguments.absolute == 0 && arguments.relative == 0;
    double limit = arguments.absolute + arguments.relative * std::fabs(y);
    found.elements += strict || !(distance <= limit);
  }
  const TensorSource &a, &b;
  const Arguments &arguments;
};

// An entry of the JSON list, from which lineOf() also makes the printed line.
Json entryOf(const Tensor &tensor, const std::string &what) {
  return {{"name", tensor.name}, {"part", tensor.part}, {"difference", what}};
}

// Finds tensors by name and part, then by an alias.
class Names {
public:
  explicit Names(const TensorSource &source) {
    for (size_t i = 0; i < source.tensors().size(); ++i) {
      const Tensor &tensor = source.tensors()[i];
      byName[{tensor.name, tensor.part}] = i;
      for (const std::string &alias : tensor.aliases)
        byName.try_emplace({alias, tensor.part}, i);
    }
  }
  std::optional<size_t> find(const Tensor &tensor) const {
    auto found = byName.find({tensor.name, tensor.part});
    for (size_t i = 0; found == byName.end() && i < tensor.aliases.size(); ++i)
      found = byName.find({tensor.aliases[i], tensor.part});
    if (found == byName.end())
      return {};
    return found->second;
  }

private:
  std::map<std::pair<std::string, std::string>, size_t> byName;
};

// Walks A in its order and then names what only B has.
Result<Json> compareAll(const TensorSource &a, const TensorSource &b,
                        const Arguments &arguments) {
  Json found = Json::array();
  Names inA(a), inB(b);
  Comparison comparison(a, b, arguments);
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    const Tensor &tensor = a.tensors()[i];
    std::optional<size_t> j = inB.find(tensor);
    if (!j) {
      found.push_back(entryOf(tensor, "only in A"));
      continue;
    }
    const Tensor &other = b.tensors()[*j];
    if (tensor.shape != other.shape) {
      found.push_back(entryOf(tensor, "is " + shapeText(tensor.shape) +
                                          " in A and " +
                                          shapeText(other.shape) + " in B"));
      continue;
    }
    Difference difference;
    FSDPC_TRY(comparison.compare(i, *j, difference));
    if (difference.elements == 0)
      continue;
    Json entry = entryOf(tensor, "values");
    entry["elements"] = difference.elements;
    entry["max_abs"] = difference.absolute;
    entry["max_rel"] = difference.relative;
    found.push_back(std::move(entry));
  }
  for (const Tensor &tensor : b.tensors())
    if (!inA.find(tensor))
      found.push_back(entryOf(tensor, "only in B"));
  return found;
}

std::string lineOf(const Json &entry) {
  std::string name = printable(entry["name"].get<std::string>()),
              part = entry["part"].get<std::string>(),
              what = entry["difference"].get<std::string>();
  std::string line = "'" + name + "'" + (part.empty() ? "" : " " + part) + " ";
  // "only in A" is continued to "is only in A"; "is [2, 3] in A …" has its
  // verb.
  if (what != "values")
    return line + (what[0] == 'o' ? "is " : "") + what + "\n";
  char numbers[128];
  std::snprintf(numbers, sizeof numbers,
                "differs in %lld elements, by at most %.3g, relative %.3g\n",
                static_cast<long long>(entry["elements"].get<int64_t>()),
                entry["max_abs"].get<double>(), entry["max_rel"].get<double>());
  return line + numbers;
}

// Code 1 says that the two differ, as with diff(1), so what cannot be read
// is 3.
constexpr ExitCode differs = ExitCode(1), unreadable = ExitCode(3);

int reportUnreadable(const Error &error) {
  report(error);
  return int(unreadable);
}

} // namespace

int diff(const Arguments &arguments) {
  Content content =
      arguments.states ? Content::valuesAndStates : Content::values;
  auto a = openTensors(arguments.input, content, arguments.step);
  if (!a)
    return reportUnreadable(a.error());
  auto b = openTensors(arguments.other, content, arguments.step);
  if (!b)
    return reportUnreadable(b.error());
  // On other ranks residuals are distributed anew, so those of the larger
  // number of ranks are taken as the smaller would begin with them.
  int64_t ranksA = (*a)->residualRanks(), ranksB = (*b)->residualRanks();
  int64_t ranks = ranksA == 0   ? ranksB
                  : ranksB == 0 ? ranksA
                                : std::min(ranksA, ranksB);
  for (TensorSource *source : {a->get(), b->get()})
    if (arguments.states)
      source->addResiduals(ranks);
  auto found = compareAll(**a, **b, arguments);
  if (!found)
    return reportUnreadable(found.error());
  ExitCode code = found->empty() ? ExitCode::success : differs;
  if (arguments.json) {
    Json json = {{"equal", found->empty()}, {"differences", *found}};
    return printJson(dumpAscii(json, 2) + "\n", code);
  }
  std::string text;
  for (const Json &entry : *found)
    text += lineOf(entry);
  if (found->empty())
    text = concat("all ", (*a)->tensors().size(), " tensors are equal\n");
  return print(text, code);
}

} // namespace fsdpc::ckpt

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes a microbatch's weight when its samples are read and checked, a step
// before it runs. The exchange that each step makes anyway carries the weights
// of all ranks, so there is no extra message.
#include "runtime/train/loss_weights.h"

#include "runtime/abi/element_type.h"
#include "runtime/abi/plan_shapes.h"
#include "runtime/numeric/dtype.h"

#include <algorithm>

namespace fsdpc::runtime {

void WeightSum::add(double own) {
  if (microbatches++ == 0)
    first = own;
  sum += own;
  equal &= own == first;
}

// Returns the divisor of the weight of several microbatches.
double WeightSum::divisorOf(double value, double several) const {
  double times = weight->perMicrobatch ? several : 1;
  // Without a bound a sum of weights of both signs may be negative.
  double bounded =
      weight->atLeast > 0 ? std::max(value, times * weight->atLeast) : value;
  return bounded + times * weight->plus;
}

// Equal weights give 1 also where V times one is not what the sum is rounded
// to, but not if their divisor has a part that does not grow with V. The
// program divides by 1 where a microbatch's divisor is 0.
float WeightSum::factorOf(double own) const {
  if (divisor() == 0)
    return 0;
  double part = divisorOf(own, 1);
  if (part == 0)
    part = 1;
  bool growsWithV = weight->perMicrobatch || part == own;
  return equal && growsWithV ? 1
                             : float(double(microbatches) * part / divisor());
}

Status LossWeights::open(const Manifest &described, int64_t accumulate,
                         bool readsAll) {
  manifest = &described;
  size_t buckets = bucketCount(described);
  interpreters.assign(buckets, std::vector<WeightInterpreter>(count()));
  arguments.assign(buckets, {});
  scratch.resize(described.inputs.size());
  pointers.assign(described.inputs.size(), nullptr);
  own.assign(size_t(accumulate) * count(), 0);
  factors.assign(own.size(), 1);
  std::vector<bool> isRead(described.inputs.size(), isOn() && readsAll);
  for (size_t bucket = 0; bucket < buckets; ++bucket)
    for (size_t i = 0; i < count(); ++i) {
      const LossWeight &weight = described.lossWeights[i];
      auto malformed = [&](const std::string &what) {
        return inputError("malformed manifest in the program: weight '" +
                          weight.name + "' " + what);
      };
      // The program has places for no more factors.
      if (i >= size_t(mostLossWeights))
        return malformed("is one too many");
      if (weight.programs.size() != buckets)
        return malformed("has another number of buckets");
      WeightInterpreter &interpreter = interpreters[bucket][i];
      FSDPC_TRY(interpreter.open(weight.programs[bucket]));
      for (const WeightInterpreter::Value &value : interpreter.inputs()) {
        auto found = std::find_if(
            described.inputs.begin(), described.inputs.end(),
            [&](const Input &input) { return input.name == value.name; });
        if (found == described.inputs.end() ||
            elementsOf(shapeIn(*found, bucket), 1) !=
                int64_t(value.elements->size()))
          return malformed("reads '" + value.name + "', which is no input");
        size_t number = size_t(found - described.inputs.begin());
        arguments[bucket].push_back({number, value.elements});
        isRead[number] = true;
      }
    }
  for (size_t i = 0; i < pointers.size(); ++i) {
    if (!isRead[i])
      continue;
    const Input &input = described.inputs[i];
    scratch[i].resize(
        size_t(elementsOf(input.shape, 1) * dtypeBytes(input.dtype)));
    pointers[i] = scratch[i].data();
  }
  return {};
}

void LossWeights::measure(int64_t k, size_t bucket, void *const *samples) {
  for (const Argument &argument : arguments[bucket])
    convert(samples[argument.input], manifest->inputs[argument.input].dtype,
            argument.elements->data(), "f64",
            int64_t(argument.elements->size()));
  for (size_t i = 0; i < count(); ++i)
    own[size_t(k) * count() + i] = interpreters[bucket][i].run();
}

void LossWeights::combine(
    int64_t microbatches, int ranks, int rank,
    const std::function<double(int64_t, size_t)> &weightOf) {
  for (size_t i = 0; i < count(); ++i) {
    WeightSum sum(manifest->lossWeights[i]);
    for (int64_t j = 0; j < microbatches; ++j)
      sum.add(weightOf(j, i));
    for (int64_t j = rank, k = 0; j < microbatches; j += ranks, ++k)
      factors[size_t(k) * count() + i] = sum.factorOf(weightOf(j, i));
  }
}

void LossWeights::write(int64_t k, float *to) const {
  std::copy_n(factors.data() + size_t(k) * count(), count(), to);
}

} // namespace fsdpc::runtime

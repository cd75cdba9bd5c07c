// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads divisors and factors of means as powers of a count, however they are
// written: count, 1 / count, rsqrt(count), exp(-log(count)), max(count, 1).
#pragma once

#include "passes/grad/SampleFlow.h"

#include <optional>

namespace fsdpc::passes {

/// A sum over the samples of a microbatch, by which a mean divides.
struct Count {
  mlir::Value weight; ///< the sum: the first value that is computed so
  /// The divisor is max(weight, atLeast) + plus, times a constant.
  double atLeast = 0, plus = 0;
  /// The divisor is that over the number of terms, as `mask.mean()`. A step of
  /// V microbatches has V times as many, and so V times the two numbers.
  bool isMean = false;

  /// Returns true if the divisor is above 0 where the weight is 0.
  bool isBounded() const { return atLeast > 0 || plus > 0; }
};

/// count ^ exponent, times a constant; without a count the constant alone.
struct CountPower {
  std::optional<Count> count;
  double exponent = 0;
};

/// Returns `value`, of one element or repeated from one, as the power of a
/// count, or nothing if it is none.
std::optional<CountPower> powerOf(mlir::Value value, const SampleFlow &flow);

/// Returns the product of two powers, or nothing if they are of two counts.
std::optional<CountPower> product(const CountPower &one,
                                  const CountPower &other);

} // namespace fsdpc::passes

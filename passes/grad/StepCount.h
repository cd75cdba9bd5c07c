// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes the divisors of a mean, and the tests that guard it, those of a part of
// the step's mean.
#pragma once

#include "passes/grad/CountGuards.h"
#include "passes/grad/WeightedMeans.h"

namespace fsdpc::passes {

/// A microbatch whose weights add up to 0 has the factor V / (the step's
/// divisor), so it divides by 1. A test for targets holds where the step has
/// some, as its sign or its factor of 0 tells; a count with a bound is taken to
/// have some, since the bound is its divisor otherwise.
class StepCount {
public:
  StepCount(const WeightedMean &mean, mlir::Value factor,
            const SampleFlow &flow, mlir::OpBuilder &builder);

  /// Replaces what the operand reads, which follows from the count.
  void replace(mlir::OpOperand &use);

private:
  mlir::Value copy(mlir::Value value);
  mlir::Value guarded(mlir::Value count);
  mlir::Value test(const Presence &presence, mlir::Value of);

  const WeightedMean &mean;
  mlir::Value factor;
  const SampleFlow &flow;
  mlir::OpBuilder &builder;
  llvm::DenseMap<mlir::Value, mlir::Value> copies; ///< for one operand
};

} // namespace fsdpc::passes

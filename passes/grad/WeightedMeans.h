// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the means over targets of which a loss is made: quotients of a sum and
// a weight that follows from the model's inputs alone.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/ElementwiseOps.h"

namespace fsdpc::passes {

/// A mean over the targets of a microbatch.
struct WeightedMean {
  mlir::Value mean;   ///< the quotient, or the loss of a cross-entropy
  nn::DivOp quotient; ///< divides by the weight; null: a cross-entropy does
  mlir::Value weight; ///< the sum of the quotient's divisor; null: of targets
  /// The divisor is max(weight, atLeast) + plus, times a constant.
  double atLeast = 0, plus = 0;
};

/// What a search for means has found.
struct FoundMeans {
  llvm::SmallVector<WeightedMean> means;
  /// Means whose weight depends on parameters or random numbers as well.
  llvm::SmallVector<mlir::Operation *> others;
};

/// Returns the means that `loss` depends on linearly, with factors that do not
/// depend on the model's inputs. All others keep their value.
FoundMeans findMeans(mlir::Block &body, mlir::Value loss);

} // namespace fsdpc::passes

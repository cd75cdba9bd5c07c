// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the means over targets of which a loss is made: quotients of a sum and
// a weight that follows from the model's inputs alone. All other ways in which
// the loss depends on such weights are found as well, so that none is silent.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "passes/grad/CountPowers.h"

namespace fsdpc::passes {

/// An operand of a product or quotient that holds a power of a count.
struct CountFactor {
  mlir::OpOperand *use;
  mlir::Value weight; ///< the count; a mean may write it several times
};

/// A mean over the targets of a microbatch.
struct WeightedMean {
  mlir::Value mean; ///< the quotient, or the loss of a cross-entropy
  Count count;      ///< by which it divides; no weight: the entropy's targets
  /// They make 1 / count together. None: a cross-entropy divides.
  llvm::SmallVector<CountFactor> factors;
  /// Tests of whether there are targets, behind the mean.
  llvm::SmallVector<mlir::OpOperand *> tests;
};

/// A place where the loss meets what samples of a microbatch make together,
/// other than as the weight of a mean.
struct LoneCount {
  mlir::Operation *user;   ///< reads it, and parameters as well
  mlir::Operation *source; ///< combines samples; null: `user`, a cross-entropy
};

/// What a search for means has found.
struct FoundMeans {
  llvm::SmallVector<WeightedMean> means;
  /// Means whose weight depends on parameters or random numbers as well.
  llvm::SmallVector<mlir::Operation *> others;
  /// One per source.
  llvm::SmallVector<LoneCount> lone;
};

/// Returns the means that the reported loss depends on linearly, with factors
/// that do not combine samples. All others keep their value.
FoundMeans findMeans(mlir::Block &body, fsdp::ReportLossOp report,
                     const SampleFlow &flow);

} // namespace fsdpc::passes

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses what the backward computes again instead of keeping it.
#pragma once

#include "passes/grad/WeightDerived.h"

#include "llvm/ADT/SetVector.h"

namespace fsdpc::passes {

/// Returns the value whose memory is read when `value` is: reshapes are views,
/// and broadcasts of the forward are repeated where they are read. The result
/// may be `value` itself.
mlir::Value storageOf(mlir::Value value);

/// Returns the bytes of a value, dense and in its type before mixed precision.
int64_t denseBytes(mlir::Value value);

/// The cost of computing an op in the backward.
struct RecomputeChain {
  llvm::SmallVector<mlir::Operation *> ops; ///< the op after its producers
  llvm::SmallVector<mlir::Value> saved; ///< kept from the forward for it only
  int64_t savedBytes = 0;
};

/// Chooses ops of the forward that the backward computes again. It reads the
/// function as it was on construction; the clones are made by the caller
/// afterwards.
class RecomputeChooser {
public:
  explicit RecomputeChooser(mlir::Block &body);

  /// Adds the cheap ops that pay to the choice.
  void chooseCheap();
  /// Adds these ops, which must be inner ones.
  void choose(llvm::ArrayRef<mlir::Operation *> ops);
  /// Returns the ops to recompute.
  const llvm::SetVector<mlir::Operation *> &choice() const { return chosen; }
  /// Returns true if only the op's unit reads its results, and the op can run
  /// twice.
  bool isInner(mlir::Operation *op) const;
  /// Returns true if the backward reads the memory, which is a value's
  /// `storageOf`, and nothing chosen so far makes it again.
  bool isKept(mlir::Value value) const { return kept.contains(value); }
  /// Returns true if the memory would have to be kept for the backward to read
  /// it: it depends on the data of the step, and an op has computed it.
  bool isKeepable(mlir::Value value) const;
  /// Returns the product that computes the op in its epilogue, or null.
  mlir::Operation *productOf(mlir::Operation *op) const;

private:
  bool isCheap(mlir::Operation *op) const;
  bool isCandidate(mlir::Operation *op) const;
  bool pays(mlir::Operation *op, const RecomputeChain &chain) const;
  RecomputeChain reach(mlir::Operation *op, unsigned depth) const;
  void reach(mlir::Value value, mlir::Attribute unit, unsigned depth,
             RecomputeChain &chain) const;

  mlir::Block &body;
  bool fusesProducts = false; ///< with what comes behind them
  Origins origins;
  /// The last product of the forward. Values after it are kept for a moment
  /// only.
  mlir::Operation *lastProduct = nullptr;
  /// Ops whose results lead to a product of the forward, directly or not.
  llvm::DenseSet<mlir::Operation *> feedsProduct;
  /// The readers of each memory, and the memory that the backward reads.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Operation *>> readers;
  llvm::DenseSet<mlir::Value> kept;
  llvm::SetVector<mlir::Operation *> chosen;
};

/// Returns the units that --recompute-scope names, or all without that option.
/// A pattern that matches no unit is an error.
llvm::FailureOr<llvm::DenseSet<mlir::Attribute>>
unitsInScope(mlir::ModuleOp module);

} // namespace fsdpc::passes

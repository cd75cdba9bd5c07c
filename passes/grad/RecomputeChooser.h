// Chooses what the backward computes again instead of keeping it.
#pragma once

#include "passes/grad/WeightDerived.h"

#include "compiler/schedule/recompute_sets.h"

#include "llvm/ADT/SetVector.h"

#include <string>
#include <vector>

namespace fsdpc::passes {

/// Returns the value whose memory is read when `value` is: reshapes are views,
/// and broadcasts of the forward are repeated where they are read. The result
/// may be `value` itself.
mlir::Value storageOf(mlir::Value value);

/// The cost of computing an op in the backward.
struct RecomputeChain {
  llvm::SmallVector<mlir::Operation *> ops; // the op after its producers
  llvm::SmallVector<mlir::Value> saved;     // kept from the forward for it only
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
  /// Adds all ops of these units whose results only their own unit reads.
  void chooseUnits(const llvm::DenseSet<mlir::Attribute> &units);
  /// Returns the ops to recompute.
  const llvm::SetVector<mlir::Operation *> &choice() const { return chosen; }
  /// Returns the bytes that the units keep for the backward, by unit.
  llvm::DenseMap<mlir::Attribute, int64_t> keptBytes() const;

private:
  bool isKept(mlir::Value value) const { return kept.contains(value); }
  bool isInner(mlir::Operation *op) const;
  bool isCandidate(mlir::Operation *op) const;
  bool pays(mlir::Operation *op, const RecomputeChain &chain) const;
  RecomputeChain reach(mlir::Operation *op, unsigned depth) const;
  void reach(mlir::Value value, mlir::Attribute unit, unsigned depth,
             RecomputeChain &chain) const;

  mlir::Block &body;
  Origins origins;
  // The last product of the forward. Values after it are kept for a moment
  // only.
  mlir::Operation *lastProduct = nullptr;
  // Ops whose results lead to a product of the forward, directly or not.
  llvm::DenseSet<mlir::Operation *> feedsProduct;
  /// The readers of each memory, and the memory that the backward reads.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Operation *>> readers;
  llvm::DenseSet<mlir::Value> kept;
  llvm::SetVector<mlir::Operation *> chosen;
};

/// The memory that computing a unit again saves, and the time that it costs.
struct UnitTrade {
  std::string unit;
  schedule::RecomputeTrade worth;
};

/// Returns what computing all of a unit again is worth beside its cheap ops,
/// for the units that --recompute-scope names (all without it), in their order.
/// Bytes are those of the values that the backward reads from the forward, in
/// their types before mixed precision. `module` has not been through the pass
/// `recompute`.
llvm::FailureOr<std::vector<UnitTrade>> unitTrades(mlir::ModuleOp module);

/// Returns the units that --recompute-scope names, or all without that option.
/// A pattern that matches no unit is an error.
llvm::FailureOr<llvm::DenseSet<mlir::Attribute>>
unitsInScope(mlir::ModuleOp module);

} // namespace fsdpc::passes

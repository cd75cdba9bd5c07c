// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Walks a kernel's body from a root at an index, as the emitter will, and
// reports which reductions and operands it reads, where the lanes' loop could
// be cut, and what an iteration costs.
#pragma once

#include "compiler/analysis/kernels/IndexMap.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include <set>

namespace fsdpc::analysis {

/// Returns the cost of one element of the op's result, in units of an addition.
/// An exp costs about ten.
int64_t costOf(mlir::Operation *op);

/// The lanes that a part of a loop has at least where lanes share bytes
/// (IndexSpace::laneRun), for whole vectors.
inline constexpr int64_t kRunLanes = 16;

/// Collects facts about one loop body. Call visit() for each root of the loop.
class BodyWalk {
public:
  explicit BodyWalk(IndexSpace &space) : space(space) {}

  /// Forgets what was visited. Call it for each part of a loop that is cut,
  /// since each part computes its values again.
  void beginPart() { visited.clear(); }
  /// Visits element `index` of `value`, and all that it is computed from.
  void visit(mlir::Value value, const Index &index);

  /// Reductions that are read, at which index of their result. The walk stops
  /// there.
  llvm::SmallVector<std::pair<nn::ReduceOp, Index>, 4> reductions;
  /// Operands of the kernel that are read, at which linear address.
  llvm::SmallVector<std::pair<mlir::BlockArgument, IndexExpr>, 8> reads;
  llvm::SmallVector<int64_t> cuts; ///< lanes at which a condition changes
  llvm::SmallVector<int64_t>
      divisors;     ///< constants that divide the lane variable
  int64_t cost = 0; ///< of an iteration, see costOf
  bool drawsRandom = false;
  bool gathers = false;   ///< consecutive lanes are not adjacent in memory
  bool readsRuns = false; ///< several codes share a byte

private:
  using Key = std::pair<void *, std::vector<IndexExpr>>;

  void visitIndex(const Index &index, mlir::Value value);

  IndexSpace &space;
  std::set<Key> visited;
};

} // namespace fsdpc::analysis

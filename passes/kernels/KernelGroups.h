// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides which ops form a kernel: the greedy grouping behind
// `outline-kernels`.
//
// Ops are visited in program order. An op joins the group of its latest
// producer if
//   domain     the domains of the group and of the op agree (see Domain): a
//              map group takes maps of its shape, or becomes a reduction over
//              it; a reduction takes ops on its domain or its reduced shape
//   owner      unit, direction and the unit of all weights read are the same
//   no detour  nothing outside the group would run after one of its ops and
//              before another (a cycle; see GroupGraph.h)
//   size       the group has at most kMostOps ops, with those that are
//              repeated in it
// and starts a new group otherwise. The groups of its other producers are
// merged into the one that it joins, by the same rules; and a group that only
// sums rows is merged with one that visits the same rows. On GPUs, so are maps
// of a backward. Each saves a pass over memory. The short sums over blocks of
// rows that a unit's gradients end with are one kernel there for each shape.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/Build.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/kernels/GroupGraph.h"
#include "passes/kernels/OpKinds.h"

#include <optional>

namespace fsdpc::nn {
class ConcatOp;
} // namespace fsdpc::nn

namespace fsdpc::passes {

/// The most ops of a kernel, before composites are decomposed. The kernels of
/// transformers and convolution nets have up to a dozen. The compiler's stack
/// and the registers of a kernel grow with its size, and a longer one saves
/// little: what passes between two kernels is one value of sixty-four.
constexpr int64_t kMostOps = 64;

/// The most ops that a value computed where it is read (KernelGrouping::
/// isMovable) may stand for, since each reader repeats them.
constexpr int64_t kMostMovableOps = 16;

/// One kernel in the making. A group that has been merged into another one is
/// left without ops, so that the numbers of the others stay.
struct KernelGroup {
  llvm::SmallVector<mlir::Operation *> ops; ///< in program order
  int64_t size =
      0; ///< the number of ops, with the movable ones that they repeat
  Domain domain;
  bool closed = false;      ///< takes no further ops
  int64_t rowsPerBlock = 0; ///< if it sums rows in blocks
  /// The unit whose weights the group reads; null if it reads none. A kernel
  /// that read the weights of two units would need both gathered.
  mlir::StringAttr weightUnit;
};

/// The grouping of one function, complete after construction. It refers to the
/// ops of the function, so it is valid only while these exist. It changes no
/// IR.
class KernelGrouping {
public:
  KernelGrouping(mlir::func::FuncOp function, mlir::ModuleOp module);

  llvm::ArrayRef<KernelGroup> groups() const { return allGroups; }
  /// Returns the group of an op, or -1.
  int groupOf(mlir::Operation *op) const;
  /// Returns true if the op is copied into its consumers instead of having a
  /// group.
  bool isMovable(mlir::Operation *op) const { return movable.contains(op); }
  /// Returns the values of the group that are read outside it, in program
  /// order.
  llvm::SmallVector<mlir::Value> outputsOf(int group) const;
  /// Returns the op's place in the function as it was read, from 0.
  int position(mlir::Operation *op) const { return positions.lookup(op); }

private:
  /// Returns true for a slice that is contiguous in its operand's memory, which
  /// needs no code.
  bool isPieceOfMemory(mlir::Operation *op) const;
  bool isPlaced(nn::ConcatOp concat) const;
  bool isFromNothing(mlir::Operation *op) const;
  void noteWeights(mlir::Operation *op);
  /// Returns true if the op computes a weight from stored parameters.
  bool dequantises(mlir::Operation *op) const { return ofWeights.lookup(op); }
  /// kindOf, but a concat of a dequantisation is read through.
  OpKind kindHere(mlir::Operation *op) const;
  bool isColumnOfRows(mlir::Operation *op) const;
  void classify(mlir::Block &block);
  void buildGraph(mlir::Block &block);
  /// Lets the op join a group, or starts one. Called once per op, in program
  /// order.
  void place(mlir::Operation *op);
  int64_t repeatedBy(mlir::Operation *op) const;
  /// Returns false, and changes nothing, if the op cannot join the group.
  bool join(mlir::Operation *op, int group);
  /// Returns the domain that the group has after `op` joins it, or nullopt if
  /// it cannot join.
  std::optional<Domain> mergedDomain(mlir::Operation *op, int group) const;
  /// Returns true if an op outside the group reads the value, directly or
  /// through movable ops. `besides` does not count.
  bool usedOutside(mlir::Value value, int group,
                   mlir::Operation *besides) const;
  /// Returns true if nothing outside the group reads its values, except
  /// `besides`.
  bool staysInside(int group, mlir::Operation *besides) const;
  bool sameOwner(mlir::Operation *a, mlir::Operation *b) const;
  bool onlySumsRows(int group) const;
  bool isMapOfBackward(int group) const;
  bool onlyAddsBlocks(int group) const;
  void mergeOnGpu();
  void mergeSumsOfBlocks();
  llvm::ArrayRef<mlir::Operation *> groupedOpsAt(mlir::Value value);
  llvm::SmallVector<int> groupsOnSameRows(int group);
  std::optional<Domain> commonDomain(int a, int b) const;
  /// Moves all ops of `group` to `into`. Returns false, and changes nothing, if
  /// the rules forbid it.
  bool merge(int group, int into);
  std::optional<mlir::StringAttr> weightUnitOf(mlir::Operation *op) const;
  /// A producer of an operand, looking through movable ops. `indexed` is set if
  /// an op other than a broadcast is between, `broadcast` if a broadcast is.
  struct Source {
    mlir::Value value;
    bool indexed, broadcast;
  };
  llvm::SmallVector<Source> sourcesOf(mlir::Operation *op) const;

  mlir::SymbolTable symbols;
  /// The emulation too, whose kernels are those of a GPU.
  bool onGpu;
  llvm::SmallVector<KernelGroup> allGroups;
  llvm::DenseMap<mlir::Operation *, int> groupIndex, positions;
  llvm::DenseSet<mlir::Operation *> fromNothing, pieces;
  /// Views of parameters, and what is computed from them and constants alone.
  /// True where stored parameters are among them.
  llvm::DenseMap<mlir::Operation *, bool> ofWeights;
  /// With the number of ops that each repeats, itself included.
  llvm::DenseMap<mlir::Operation *, int64_t> movable;
  /// The answers of groupedOpsAt. Merges change an op's group, not that it has
  /// one.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Operation *>> opsAt;
  /// Set while sums over blocks may merge that share no values.
  bool mergesSums = false;
  /// The graph of the ops by position, with those of a group as one node.
  std::optional<GroupGraph> graph;
};

} // namespace fsdpc::passes

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Slots: values that share memory, and their live ranges. `plan-memory` packs
// them, and `verify-memory` checks them.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/schedule/packer.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::analysis {

/// Gradients are packs; gathered slots are those of parameters, fetched ones
/// those of activations that were offloaded.
enum class SlotKind { Activation, Gathered, Gradient, Fetched };

/// A result that owns memory, and its offset in its slot.
struct SlotValue {
  mlir::Operation *op; ///< carries `fsdp.offsets`
  unsigned result;
  int64_t offset;
};

/// Live from `begin` to `end`, both included. A slot with a `layout` is no
/// memory of the arena, but that of the layout's gradient (which is unsummed),
/// and is its own for the whole step.
struct Slot {
  SlotKind kind = SlotKind::Activation;
  int64_t bytes = 0;
  int64_t slack = 0; ///< bytes that are room for padding
  int begin = 0, end = 0;
  mlir::FlatSymbolRefAttr layout;
  llvm::SmallVector<SlotValue> values;
};

/// The alignment of a slot in bytes, enough for any vector load.
constexpr int64_t kSlotAlignment = 64;

struct SlotOptions {
  /// The room behind a gathered buffer (CompileOptions::gatherPadding), in
  /// bytes.
  int64_t gatherPadding = 0;
  /// Returns true if a result that may take an operand's memory does.
  bool (*useTie)(mlir::OpResult result, mlir::Value operand) = nullptr;
};

/// Returns the slots of a function, with positions from `firstPosition` on.
/// Emits an error if a member of a pack cannot be placed in it.
mlir::FailureOr<llvm::SmallVector<Slot>> findSlots(mlir::func::FuncOp function,
                                                   int firstPosition,
                                                   const SlotOptions &options);

/// Returns the name under which diagnostics show what a slot holds: "all_gather
/// of h.0.flat", "activations of h.0".
std::string labelOf(const Slot &slot);

/// Returns the slots as intervals for the packer.
std::vector<schedule::Interval> intervalsOf(llvm::ArrayRef<Slot> slots);

/// The slots that share the arena. @update runs after @microbatch, @evaluate
/// between steps; positions count from the beginning of each function.
/// Functions that the module lacks have none.
struct ArenaSlots {
  llvm::SmallVector<Slot> microbatch, update, evaluate;
  llvm::SmallVector<Slot> ofLayouts; ///< of @microbatch, outside the arena
};

/// Removes the slots that are memory of layouts, and returns them.
llvm::SmallVector<Slot> takeOfLayouts(llvm::SmallVectorImpl<Slot> &slots);
mlir::FailureOr<ArenaSlots> findArenaSlots(mlir::ModuleOp module);

/// The arena's slots, packed. `cap` is the number of bytes that the arena may
/// take; the packer searches longer for a packing that keeps it.
struct ArenaPlan {
  llvm::SmallVector<Slot> slots; ///< of @microbatch, then of @update
  schedule::Packing packing;     ///< offsets in the order of the slots
  /// @evaluate shares the arena with a step, not a moment: it is packed alone.
  llvm::SmallVector<Slot> evaluateSlots;
  schedule::Packing evaluatePacking;
  llvm::SmallVector<Slot> ofLayouts;
};
mlir::FailureOr<ArenaPlan> packArena(mlir::ModuleOp module,
                                     std::optional<int64_t> cap);

/// Returns the number of results of `op` that `fsdp.offsets` lists: its
/// tensors, or the buffers that a gather will fill.
unsigned offsetCount(mlir::Operation *op);

/// Returns the offset that `fsdp.offsets` gives a result, or nullopt.
std::optional<int64_t> plannedOffset(mlir::Operation *op, unsigned result);
/// Returns true if the plan uses a tie, that is, both have the same offset.
bool isPlannedTie(mlir::OpResult result, mlir::Value operand);

} // namespace fsdpc::analysis

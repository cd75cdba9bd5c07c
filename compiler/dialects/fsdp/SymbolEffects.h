// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The effects of an op on memory behind symbols, as the op states them in ODS.
// verify-schedule and verify-rt build their proofs on it, so an op that states
// nothing is an error here, never an op that does nothing.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace fsdpc::fsdp {

/// Returns true if both are one resource.
bool isSame(mlir::SideEffects::Resource *a, mlir::SideEffects::Resource *b);

/// A read or a write of one resource. Allocations are left out: new memory
/// conflicts with nothing. The unit of the proofs: two ops are ordered if a
/// pair of their effects conflicts.
struct SymbolEffect {
  mlir::SideEffects::Resource *resource;
  mlir::SymbolRefAttr symbol; ///< null: all of the resource
  bool write;
};

/// Returns the op's effects, those of its regions included where it says so.
/// Emits an error if they are unknown.
mlir::FailureOr<mlir::SmallVector<mlir::MemoryEffects::EffectInstance>>
effectsOf(mlir::Operation *op);

/// Returns those of the op's effects that are on no operand or result. An
/// effect on the memory of layouts becomes one per layout that the op names.
/// Emits an error if the op names layouts and has no effect on their memory.
mlir::FailureOr<mlir::SmallVector<SymbolEffect>>
symbolEffectsOf(mlir::Operation *op,
                mlir::ArrayRef<mlir::MemoryEffects::EffectInstance> effects);

/// Returns true if the effects may touch the same memory and one of them
/// writes. The default resource stands for any memory.
bool conflict(const SymbolEffect &a, const SymbolEffect &b);

} // namespace fsdpc::fsdp

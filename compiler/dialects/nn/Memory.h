// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface and the traits of NNMemory.td: what ops of nn and fsdp say
// about the memory of their results.
#pragma once

#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/Value.h"

#include "compiler/dialects/nn/NNMemory.h.inc"

namespace fsdpc::nn {

/// The result has no slot in the arena: it lies in the memory of a symbol, or
/// takes no memory.
template <typename OpTy>
struct OutsideArena : mlir::OpTrait::TraitBase<OpTy, OutsideArena> {};
/// The op names memory or marks a place, so the runtime has nothing to do for
/// it: the pointers of its users contain it.
template <typename OpTy>
struct NoCall : mlir::OpTrait::TraitBase<OpTy, NoCall> {};
/// Readers of the result read all of the operand instead: a reshape has its
/// memory, and each reader repeats a broadcast. So the backward keeps the
/// operand, and not the result.
template <typename OpTy>
struct ReadAsOperand : mlir::OpTrait::TraitBase<OpTy, ReadAsOperand> {};
/// The operands are computed at their places in the memory of the result, so
/// they have none of their own.
template <typename OpTy>
struct HoldsOperands : mlir::OpTrait::TraitBase<OpTy, HoldsOperands> {};
/// The op may be marked `nn.strided` (Strided.h). Its result is then read where
/// the operand lies, or its operands are written where the result lies.
template <typename OpTy>
struct MayLieInOperand : mlir::OpTrait::TraitBase<OpTy, MayLieInOperand> {};
template <typename OpTy>
struct MayLieInResult : mlir::OpTrait::TraitBase<OpTy, MayLieInResult> {};

} // namespace fsdpc::nn

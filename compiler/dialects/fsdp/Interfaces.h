// The interfaces and traits of FSDPInterfaces.td, for the dialects whose ops
// have them.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/OpDefinition.h"

#include "llvm/ADT/STLExtras.h"

namespace fsdpc::fsdp {

// Detects the accessor that ODS generates for an attribute `layouts`.
template <typename OpTy>
using LayoutsAttrOf = decltype(std::declval<OpTy &>().getLayoutsAttr());

// The layouts in the attribute `layouts` of an op that has it, else the one in
// its attribute `layout`.
template <typename OpTy>
mlir::SmallVector<mlir::FlatSymbolRefAttr> layoutRefsOf(OpTy op) {
  if constexpr (llvm::is_detected<LayoutsAttrOf, OpTy>::value)
    return llvm::to_vector(
        op.getLayoutsAttr().template getAsRange<mlir::FlatSymbolRefAttr>());
  else
    return {op.getLayoutAttr()};
}

// The value is not a constant, though the op has no operands; it stays the same
// during a microbatch, so the backward reads it and never computes it again.
template <typename OpTy>
struct FixedPerMicrobatch : mlir::OpTrait::TraitBase<OpTy, FixedPerMicrobatch> {
};

template <typename OpTy>
struct HoldsWeights : mlir::OpTrait::TraitBase<OpTy, HoldsWeights> {};

template <typename OpTy>
struct InComputeType : mlir::OpTrait::TraitBase<OpTy, InComputeType> {};

template <typename OpTy>
struct ReachesPadding : mlir::OpTrait::TraitBase<OpTy, ReachesPadding> {};

template <typename OpTy>
struct InF32 : mlir::OpTrait::TraitBase<OpTy, InF32> {};

} // namespace fsdpc::fsdp

#include "compiler/dialects/fsdp/FSDPInterfaces.h.inc"

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interfaces and traits of FSDPInterfaces.td, for the dialects whose ops
// have them. An op states here what it moves and sends, so no pass or analysis
// lists ops.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/Operation.h"

#include "llvm/ADT/STLExtras.h"

namespace fsdpc::fsdp {

/// Detects the accessor that ODS generates for an attribute `layouts`. Ops of
/// one layout have `layout` instead.
template <typename OpTy>
using LayoutsAttrOf = decltype(std::declval<OpTy &>().getLayoutsAttr());

/// The layouts in the attribute `layouts` of an op that has it, else the one in
/// its attribute `layout`.
template <typename OpTy>
mlir::SmallVector<mlir::FlatSymbolRefAttr> layoutRefsOf(OpTy op) {
  if constexpr (llvm::is_detected<LayoutsAttrOf, OpTy>::value)
    return llvm::to_vector(
        op.getLayoutsAttr().template getAsRange<mlir::FlatSymbolRefAttr>());
  else
    return {op.getLayoutAttr()};
}

/// The kinds of transfers. Gathers and fetches bring tensors into memory;
/// reductions and offloads read tensors that are there.
enum class TransferKind {
  Gather,  ///< parameters, from the shards of other ranks
  Reduce,  ///< gradients, to the shards of all ranks
  Offload, ///< activations, to the rank's file
  Fetch    ///< activations, from it
};

/// Returns the only op that waits for the token which `start` yields; null if
/// `start` yields no token or nothing waits for it.
mlir::Operation *waitOf(mlir::Operation *start);

/// Returns the tensors that a transfer of this kind brings into memory.
mlir::ValueRange arrivalsOf(mlir::Operation *transfer, TransferKind kind);

/// The name under which volumes list gathers of secondary shards.
inline constexpr llvm::StringLiteral kGatherSecondary = "gather_secondary";

/// How a layout travels between ranks.
enum class SentForm {
  Computed,   ///< in the compute type
  Gathered,   ///< the same, or in blocks where layouts have them
  HandedOver, ///< gradients as the microbatch computed them
  Reduced,    ///< gradients in the type of --reduce-dtype
  Wide,      ///< in f32: shards of sums of gradients, which are reduced already
  ToOwners,  ///< matrices, to the ranks that orthogonalise them
  FromOwners ///< and back
};

struct Sending {
  llvm::StringRef name; ///< "all_gather", as volumes list it
  SentForm form;
  bool eachMicrobatch; ///< false: once per step
};

/// The value is not a constant, though the op has no operands; it stays the
/// same during a microbatch, so the backward reads it and never computes it
/// again.
template <typename OpTy>
struct FixedPerMicrobatch : mlir::OpTrait::TraitBase<OpTy, FixedPerMicrobatch> {
};

/// The results hold parameters: those of a layout, or a part of it.
template <typename OpTy>
struct HoldsWeights : mlir::OpTrait::TraitBase<OpTy, HoldsWeights> {};

/// mixed-precision gives the op the compute type of its layout, whatever types
/// its operands have.
template <typename OpTy>
struct InComputeType : mlir::OpTrait::TraitBase<OpTy, InComputeType> {};

/// A collective, in one piece or split, or a free. The schedule decides where
/// it stands, so it has no position of its own among the ops of a function.
template <typename OpTy>
struct MovedBySchedule : mlir::OpTrait::TraitBase<OpTy, MovedBySchedule> {};

/// A call whose operands in the arena are flat layouts, each with room behind
/// it for the padding of its shards. The proofs of verify-rt count that room as
/// touched.
template <typename OpTy>
struct ReachesPadding : mlir::OpTrait::TraitBase<OpTy, ReachesPadding> {};

/// mixed-precision casts the op's operands to f32.
template <typename OpTy>
struct InF32 : mlir::OpTrait::TraitBase<OpTy, InF32> {};

} // namespace fsdpc::fsdp

#include "compiler/dialects/fsdp/FSDPInterfaces.h.inc"

namespace fsdpc::fsdp {

/// Returns true if the op is a transfer of this kind, in one piece or its
/// start.
inline bool isTransfer(mlir::Operation *op, TransferKind kind) {
  auto transfer = llvm::dyn_cast<TransferOpInterface>(op);
  return transfer && transfer.getTransferKind() == kind;
}

} // namespace fsdpc::fsdp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops that the backward computes again for a memory limit, as attributes of
// ops and units. FSDPBase.td describes both.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

#include <cstdint>
#include <optional>

namespace fsdpc::fsdp {

/// An op of the forward with this mark runs again, for a limit or because a
/// user has edited a dump.
constexpr llvm::StringLiteral kRecomputeAttr = "fsdp.recompute";

/// Tells how much of a unit runs again.
struct Recomputed {
  int64_t ops = 0; ///< ops with the mark
  int64_t of = 0;  ///< ops that could have it; cheap ones run again in any case
  int64_t us = 0;  ///< the estimated time of those with the mark
};

/// A unit has a dictionary of Recomputed under this name.
constexpr llvm::StringLiteral kRecomputedAttr = "fsdp.recomputed";

/// Writes `fsdp.recomputed` on a unit.
void setRecomputed(UnitOp unit, const Recomputed &recomputed);

/// Returns what setRecomputed has written, or nothing.
std::optional<Recomputed> recomputedOf(UnitOp unit);

/// Returns true for the attribute as setRecomputed writes it.
bool isRecomputed(mlir::Attribute value);

} // namespace fsdpc::fsdp

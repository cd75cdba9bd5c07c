// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Segments: the runs of ops in which a unit is at work. Collectives are placed
// at their bounds, and prefetching counts in them.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

namespace fsdpc::passes {

/// A run of ops of one unit and direction, from `first` to `last` inclusive.
/// Ops of no unit, views of weights and ops without operands may stand between
/// and belong to no segment.
struct Segment {
  mlir::FlatSymbolRefAttr unit;
  bool backward;
  mlir::Operation *first, *last;
};

/// Returns the unit that form-units gave the op, or null. As set by form-units,
/// and by later passes on the ops that they insert.
mlir::FlatSymbolRefAttr getUnit(mlir::Operation *op);

/// Returns true if the result of `op` is a flat parameter buffer or a part of
/// one in place: flat, whole, a gather, a view, or a reshape of one.
bool isWeightAlias(mlir::Operation *op);

/// Returns true if the op computes with a weight. Views of weights read
/// nothing: their users do.
bool readsWeights(mlir::Operation *op);

/// Returns the segments in program order. An op between two readers of one unit
/// and direction stays in their segment whatever its own unit is, so that it
/// does not break a layer in two.
llvm::SmallVector<Segment> findSegments(mlir::Block &body);

/// Gives `to` the unit and direction of `from`.
void copyPlace(mlir::Operation *from, mlir::Operation *to);

} // namespace fsdpc::passes

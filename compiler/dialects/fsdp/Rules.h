// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Diagnostics of the verifiers that close the phases. Each says which rule of
// the pass's description an op breaks.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

namespace fsdpc::fsdp {

/// Emits "breaks rule 'RULE': " at the op; the caller appends the reason. The
/// rule has the name under which the pass's page lists it, so that whoever has
/// edited a dump finds what it promises.
inline mlir::InFlightDiagnostic broken(mlir::Operation *op,
                                       llvm::StringRef rule) {
  return op->emitOpError("breaks rule '") << rule << "': ";
}

/// Attaches `note` at `other` to the error, and returns failure.
inline llvm::LogicalResult refuseWithNote(mlir::InFlightDiagnostic diag,
                                          mlir::Operation *other,
                                          llvm::StringRef note) {
  diag.attachNote(other->getLoc()) << note;
  return diag;
}

/// Returns the name of a unit for messages, or "none" if the op has no unit.
inline llvm::StringRef nameOrNone(mlir::FlatSymbolRefAttr unit) {
  return unit ? unit.getValue() : "none";
}

} // namespace fsdpc::fsdp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Resolves symbols for the verifiers of fsdp ops, in the files
// VerifySymbols.cpp and VerifyUpdateSymbols.cpp. Each function emits its error
// on the op.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

namespace fsdpc::fsdp {

/// Returns the symbol `name` as a `SymbolOp`. Emits an error if it does not
/// exist or is an op of another kind.
template <typename SymbolOp>
mlir::FailureOr<SymbolOp> find(mlir::Operation *op,
                               mlir::SymbolTableCollection &symbols,
                               mlir::FlatSymbolRefAttr name) {
  auto symbol = symbols.lookupNearestSymbolFrom<SymbolOp>(op, name);
  if (!symbol)
    return op->emitOpError()
           << "references '" << name.getValue() << "', which is not a "
           << SymbolOp::getOperationName();
  return symbol;
}

/// The layouts that an op may name. Frozen layouts have no gradient and no
/// optimizer state, so ops on these require trainable ones.
enum class Members { Any, Trainable };

/// Checks one reference to a layout. `buffer`, if given, must be the type of
/// the layout's flat buffer.
mlir::LogicalResult verifyLayout(mlir::Operation *op,
                                 mlir::SymbolTableCollection &symbols,
                                 mlir::FlatSymbolRefAttr name, Members members,
                                 mlir::Type buffer = {});

mlir::LogicalResult verifyLayouts(mlir::Operation *op,
                                  mlir::SymbolTableCollection &symbols,
                                  mlir::ArrayAttr layouts, Members members);

/// Checks one buffer per layout, in the same order.
mlir::LogicalResult verifyLayouts(mlir::Operation *op,
                                  mlir::SymbolTableCollection &symbols,
                                  mlir::ArrayAttr layouts, Members members,
                                  mlir::TypeRange buffers);

} // namespace fsdpc::fsdp

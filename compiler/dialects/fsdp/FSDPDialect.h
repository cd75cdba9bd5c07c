// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The fsdp dialect: parameters, flat layouts, units, collectives, schedule.
#pragma once

#include "compiler/dialects/fsdp/Interfaces.h"
#include "compiler/dialects/fsdp/Memory.h"
#include "compiler/dialects/nn/Memory.h"
#include "compiler/dialects/nn/NNDialect.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

/// The order is fixed: ops use the attributes and types, and all use the
/// dialect.
#include "compiler/dialects/fsdp/FSDPDialect.h.inc"

#define GET_TYPEDEF_CLASSES
#include "compiler/dialects/fsdp/FSDPTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/dialects/fsdp/FSDPAttributes.h.inc"

#define GET_OP_CLASSES
#include "compiler/dialects/fsdp/FSDPOps.h.inc"

namespace fsdpc::fsdp {

/// Read and write a layout's compression as a word and a number
/// (Compression.cpp).
mlir::OptionalParseResult parseCompression(mlir::OpAsmParser &parser,
                                           CompressionAttr &compression);
void printCompression(mlir::OpAsmPrinter &printer, LayoutOp layout,
                      CompressionAttr compression);

} // namespace fsdpc::fsdp

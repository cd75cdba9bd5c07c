// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rt dialect: one op for each function of the runtime's C ABI. Ops, types
// and plan attributes are generated from RT*.td. CallArguments and Manifest are
// only declared here: few files that use rt ops read their arguments or plans.
#pragma once

#include "compiler/dialects/fsdp/Interfaces.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/rt/Memory.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "compiler/dialects/rt/RTDialect.h.inc"
#include "compiler/dialects/rt/RTEnums.h.inc"

namespace fsdpc {
struct Manifest;
namespace rt {
class CallArguments;

/// Marks ops that copy to or from the host. A GPU runs them on streams of
/// their own, so nothing orders them with the other commands of their stream
/// but its events, which stand for both.
template <typename OpTy>
struct CopiesApart : mlir::OpTrait::TraitBase<OpTy, CopiesApart> {};

/// Marks ops that on a GPU reach what is offloaded of layouts through pieces of
/// device memory. On stream `compute` a piece comes ahead of the kernel that
/// reads it, and waits for nothing that the function enqueues before.
template <typename OpTy>
struct ThroughPieces : mlir::OpTrait::TraitBase<OpTy, ThroughPieces> {};

/// Bytes that an op reads or writes behind an address, from the address on. A
/// lower bound on what the pointer must declare.
struct AccessRange {
  mlir::OpOperand *address;
  int64_t bytes;
};

} // namespace rt
} // namespace fsdpc

#include "compiler/dialects/rt/RTAttrInterfaces.h.inc"
#include "compiler/dialects/rt/RTInterfaces.h.inc"

#define GET_TYPEDEF_CLASSES
#include "compiler/dialects/rt/RTTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/dialects/rt/RTAttributes.h.inc"
#define GET_OP_CLASSES
#include "compiler/dialects/rt/RTOps.h.inc"

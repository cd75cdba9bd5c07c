// The rt dialect: one op for each function of the runtime's C ABI. Ops, types
// and plan attributes are generated from RT*.td. CallArguments and Manifest are
// only declared here: few files that use rt ops read their arguments or plans.
#pragma once

#include "compiler/dialects/fsdp/Interfaces.h"
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

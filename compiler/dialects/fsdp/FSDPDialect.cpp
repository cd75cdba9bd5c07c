// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Registration of the fsdp dialect; ops are defined in FSDPOpsShard*.cpp.
#include "compiler/dialects/fsdp/FSDPDialect.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "compiler/dialects/fsdp/FSDPDialect.cpp.inc"
#include "compiler/dialects/fsdp/FSDPInterfaces.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/dialects/fsdp/FSDPTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/dialects/fsdp/FSDPAttributes.cpp.inc"

using namespace fsdpc::fsdp;

void FSDPDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "compiler/dialects/fsdp/FSDPTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "compiler/dialects/fsdp/FSDPAttributes.cpp.inc"
      >();
  // mlir-tblgen cuts the ops into shards, which compile side by side.
  registerFSDPDialectOperations(this);
}

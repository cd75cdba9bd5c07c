// The passes of code generation.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace fsdpc::codegen {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/codegen/Passes.h.inc"
} // namespace fsdpc::codegen

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes of code generation, declared in Passes.td. They run on groups of
// kernels (KernelCompiler.h), not in the pipeline of phases.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace fsdpc::codegen {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/codegen/Passes.h.inc"
} // namespace fsdpc::codegen

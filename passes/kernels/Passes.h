// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes of the phase `kernels`.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace fsdpc::passes {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

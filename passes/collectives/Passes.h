// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes of the phase `collectives`. After it gathers, frees and reductions
// are where the strategy wants them, synchronous and correct in program order.
#pragma once

#include "mlir/Pass/Pass.h"

namespace fsdpc::passes {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/collectives/Passes.h.inc"
} // namespace fsdpc::passes

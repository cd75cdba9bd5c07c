// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes of the phase `shard`. After it units have flat layouts, types
// follow the precision policy, and @update exists.
#pragma once

#include "mlir/Pass/Pass.h"

namespace fsdpc::passes {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/shard/Passes.h.inc"
} // namespace fsdpc::passes

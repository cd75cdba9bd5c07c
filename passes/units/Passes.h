// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes of the phase `units`. After it every op and parameter has a unit.
#pragma once

#include "mlir/Pass/Pass.h"

namespace fsdpc::passes {
#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/units/Passes.h.inc"
} // namespace fsdpc::passes

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc simulate`: steps of one plan on other numbers of ranks, on another
// machine, and with ranks that are not equally fast.
#pragma once

#include "tools/fsdpc/CommandLine.h"

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::plan {

/// Moves those options from `given` to a dump's own that say on which machine
/// it runs, and computes the costs of its ops for that machine. Its schedule
/// stays.
void takeMachine(mlir::ModuleOp module, fsdp::CompileOptions &given);

/// Prints the steps, and writes the files that the line asks for. The module is
/// past the phase `memory`.
llvm::LogicalResult simulate(mlir::ModuleOp module,
                             const driver::CommandLine &line);

} // namespace fsdpc::plan

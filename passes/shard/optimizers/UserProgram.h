// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The optimizer that a user has written: --optimizer=FILE.mlir.
#pragma once

#include "compiler/options/Optimizers.h"
#include "passes/shard/optimizers/Scalars.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <memory>

namespace fsdpc::passes {

using Results = llvm::SmallVector<mlir::Value>;

/// A module with one function, which has been checked. Shared, since MLIR's own
/// reference cannot be copied.
using UserProgram = std::shared_ptr<mlir::OwningOpRef<mlir::ModuleOp>>;

/// Parses and checks the text of a file. Emits an error at the line that is
/// wrong and returns null if it is not a pointwise program.
UserProgram parseUserProgram(const fsdp::OptimizerChoice &choice,
                             mlir::MLIRContext *context);

/// Returns the names of its states, which live as long as the context. In the
/// order of the arguments, each unique in the program.
fsdp::StateNames stateNames(const UserProgram &program);

/// Copies its ops. Returns the new parameter and the new states. `in` must have
/// as many states as names.
Results copyProgram(const UserProgram &program, Scalars s, Arguments in);

} // namespace fsdpc::passes

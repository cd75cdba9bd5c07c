// The programs of the optimizers. Each file beside this one has a family.
#pragma once

#include "compiler/dialects/fsdp/Options.h"
#include "passes/shard/optimizers/Scalars.h"

namespace fsdpc::passes {

using StateNames = llvm::SmallVector<llvm::StringRef>;
using Results = llvm::SmallVector<mlir::Value>;

/// Returns the names that torch.optim has for the f32 states of an element.
StateNames stateNames(const fsdp::CompileOptions &options);

/// Builds the program of the chosen optimizer. Returns the new parameter and
/// the new states. States are zero before the first step; one that starts with
/// another value is replaced by it where the step is 1.
Results buildProgram(const fsdp::CompileOptions &options, Scalars s,
                     Arguments in);

// Programs.cpp lists these by optimizer.
Results buildAdam(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildAdamax(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildNAdam(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildRAdam(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildAdadelta(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildAdagrad(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildRMSprop(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildSGD(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildASGD(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildRprop(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildLion(const fsdp::CompileOptions &, Scalars, Arguments);

} // namespace fsdpc::passes

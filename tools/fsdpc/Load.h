// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The module that a command line names, with its options.
#pragma once

#include "compiler/codegen/Executable.h"
#include "frontends/onnx/Import.h"
#include "runtime/support/exit_code.h"
#include "tools/fsdpc/CommandLine.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace fsdpc::driver {

constexpr int kInputFault = int(ExitCode::wrongInput),
              kUsageFault = int(ExitCode::wrongCommandLine);

/// Returns the files that the compile writes at its end.
std::vector<std::string> outputsOf(const CommandLine &line);

/// Prints an error that belongs to no place in the input.
llvm::LogicalResult usageError(const llvm::Twine &text);

/// Imports a model, with the options in the module, and those that the model
/// itself sets.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importModel(llvm::StringRef path, fsdp::CompileOptions options,
            mlir::MLIRContext *context,
            frontend::ImportSummary *summary = nullptr);

/// Returns the modules to compile, one per bucket (tools/fsdpc/Buckets.h), with
/// their options, and fills in what their program needs. Returns none after an
/// error and sets `code` to the exit code.
std::vector<mlir::OwningOpRef<mlir::ModuleOp>>
load(const CommandLine &line, mlir::MLIRContext *context,
     codegen::ExecutableOptions &executable, int &code);

} // namespace fsdpc::driver

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The inputs of a model: their names, their types with symbolic dimensions
// fixed, and their legal values.
#pragma once

#include "frontends/onnx/Import.h"
#include "frontends/onnx/Parameters.h"
#include "frontends/onnx/Refusals.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fsdpc::frontend {

struct ModelInputs {
  std::vector<std::string> names;
  llvm::SmallVector<mlir::Type> types;
};

/// Returns the graph inputs that are not parameters, scalars last, and adds
/// those that cannot be fed to `refusals`. Fails after an error that lists all
/// symbolic dimensions without a value.
mlir::FailureOr<ModelInputs> readInputs(const ModelFile &model,
                                        const ParameterTable &parameters,
                                        const fsdp::CompileOptions &options,
                                        Refusals &refusals,
                                        mlir::MLIRContext *context);

/// Drops unused arguments, names the others, and records the range of integers
/// that select rows of a table or classes of a loss. The program checks its
/// data against it. Emits an error if all are scalars, which have no samples.
mlir::LogicalResult finishInputs(mlir::func::FuncOp function,
                                 llvm::ArrayRef<std::string> names);

} // namespace fsdpc::frontend

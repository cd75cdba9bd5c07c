// The model's inputs: names, types with symbolic dimensions fixed, legal
// values.
#pragma once

#include "frontends/onnx/Import.h"
#include "frontends/onnx/Parameters.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fsdpc::frontend {

struct ModelInputs {
  std::vector<std::string> names;
  llvm::SmallVector<mlir::Type> types;
};

// Those graph inputs that are not parameters. Emits an error that lists the
// symbolic dimensions without a value.
mlir::FailureOr<ModelInputs> readInputs(const ModelFile &model,
                                        const ParameterTable &parameters,
                                        const ImportOptions &options,
                                        mlir::MLIRContext *context);

// Drops arguments without a use, and notes the range of integers that select
// rows of a table or classes of a loss, for the program to check its data
// against.
void finishInputs(mlir::func::FuncOp function);

} // namespace fsdpc::frontend

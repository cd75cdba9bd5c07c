// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The optimizer and the initial values of a model's own training (Training.h).
#pragma once

#include "frontends/onnx/GraphImporter.h"
#include "frontends/onnx/ScalarProgram.h"
#include "frontends/onnx/Training.h"

#include "mlir/IR/OwningOpRef.h"

namespace fsdpc::frontend {

/// Evaluates the initialization graph. Fails after an error at a value that is
/// neither constant nor made by one node of random numbers.
mlir::FailureOr<InitialValues> readInitialization(const Training &training,
                                                  GraphImporter &importer);

/// Holds the update of a model's training as ops, with classified arguments.
struct ImportedUpdate {
  mlir::OwningOpRef<mlir::ModuleOp> holder; ///< of the block
  UpdateArguments arguments;
  std::string kinds; ///< the optimizer nodes that it has, as in a summary
};

/// Imports the update. Fails after an error if a node is refused, or if what it
/// reads is neither a parameter, a gradient, a state nor a number.
mlir::FailureOr<ImportedUpdate> importUpdate(const Training &training,
                                             const InitialValues &initial,
                                             GraphImporter &importer,
                                             const ParameterTable &parameters);

/// Turns the update into a program like a user's of --optimizer=FILE.mlir, and
/// sets it in `options`, with its learning rate. Fails after an error if the
/// update is not pointwise, or if it differs among parameters.
mlir::LogicalResult adoptOptimizer(ImportedUpdate &update,
                                   GraphImporter &importer,
                                   ParameterTable &parameters,
                                   fsdp::CompileOptions &options,
                                   ImportSummary &summary);

} // namespace fsdpc::frontend

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The files of onnxruntime-training's generate_artifacts, which lie in one
// folder:
//
//   PREFIXtraining_model.onnx    forward, gradients and their accumulators
//   PREFIXcheckpoint             the values of the parameters
//   PREFIXoptimizer_model.onnx   one node with the optimizer's settings
//
// The forward is imported. The gradient nodes and the accumulators say which
// parameters are trained, and are then dropped: the compiler makes its own.
#pragma once

#include "frontends/onnx/Import.h"
#include "frontends/onnx/Training.h"

namespace fsdpc::frontend {

/// Returns true if the graph accumulates gradients, as training models do.
bool isRuntimeTraining(const onnx::GraphProto &graph);

/// Reduces the graph to what its outputs need, of which the first is the loss,
/// and gives the parameters the checkpoint's values if there is one. Fails
/// after an error that names the gradient, the tensor or the file.
mlir::FailureOr<Training> takeRuntimeTraining(ModelFile &model,
                                              mlir::MLIRContext *context);

/// Sets the options that an optimizer model gives, but for those that the user
/// has given. Fails after an error at an optimizer that has none.
mlir::LogicalResult adoptRuntimeOptimizer(const std::string &file,
                                          fsdp::CompileOptions &options,
                                          ImportSummary &summary,
                                          mlir::MLIRContext *context);

/// The domain of onnxruntime's own ops.
constexpr llvm::StringLiteral kRuntimeDomain = "com.microsoft";

} // namespace fsdpc::frontend

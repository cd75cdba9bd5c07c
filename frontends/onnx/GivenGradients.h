// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The gradients that a model computes itself (--gradient).
#pragma once

#include "frontends/onnx/GraphImporter.h"

namespace fsdpc::frontend {

/// Builds `fsdp.gradient` of each trainable parameter for which an output of
/// the graph is a gradient by --gradient. Fails after an error that names the
/// pair.
mlir::LogicalResult handOverGradients(const ModelFile &model,
                                      GraphImporter &importer,
                                      ParameterTable &parameters,
                                      const fsdp::CompileOptions &options);

} // namespace fsdpc::frontend

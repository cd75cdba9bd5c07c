// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions and pools over three spatial dimensions, as sums and maxima of
// those over two.
#pragma once

#include "frontends/onnx/ops/Window.h"

namespace fsdpc::frontend {

/// All read a window of three dimensions; null after the node was refused.
mlir::Value convolveVolume(Node &node, mlir::Value volume, mlir::Value filter,
                           int64_t group);
/// `filter` is that of the convolution whose input's cotangent it computes.
mlir::Value convolveVolumeTransposed(Node &node, mlir::Value volume,
                                     mlir::Value filter, int64_t group);
mlir::Value maxPoolVolume(Node &node, mlir::Value volume);
mlir::Value averagePoolVolume(Node &node, mlir::Value volume);

} // namespace fsdpc::frontend

// Convolutions and pools over three spatial dimensions, as sums and maxima of
// those over two.
#pragma once

#include "frontends/onnx/ops/Window.h"

namespace fsdpc::frontend {

// Both read a window of three dimensions; null after the node was refused.
mlir::Value convolveVolume(Node &node, mlir::Value volume, mlir::Value filter,
                           int64_t group);
mlir::Value maxPoolVolume(Node &node, mlir::Value volume);
mlir::Value averagePoolVolume(Node &node, mlir::Value volume);

} // namespace fsdpc::frontend

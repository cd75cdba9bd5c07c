// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Padding that handlers of other files build as well.
#pragma once

#include "frontends/onnx/Node.h"

namespace fsdpc::frontend {

/// Extends dimension `axis` by `before` and `after` elements of a value. A
/// number of 0 or less adds nothing. It is a concat with splats, so its
/// gradient is a slice.
mlir::Value padByValue(Emitter &b, mlir::Value x, int64_t axis, int64_t before,
                       int64_t after, double value);

} // namespace fsdpc::frontend

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Unpacks stored constants whose elements nn lacks: integers of less than a
// byte, and narrow floats.
#pragma once

#include "frontends/onnx/Emitter.h"

namespace fsdpc::frontend {

/// Returns the elements of a constant of `type`, from its bytes as the file has
/// them (a vector of ui8). `onnxType` is a storage type (isStorageType).
mlir::Value unpacked(Emitter &b, mlir::Value bytes, mlir::RankedTensorType type,
                     int64_t onnxType);

} // namespace fsdpc::frontend

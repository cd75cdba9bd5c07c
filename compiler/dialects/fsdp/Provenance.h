// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says what an op or a value of the IR comes from.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

#include <limits>
#include <string>

namespace fsdpc::fsdp {

/// Returns the name of the ONNX node that an op came from, or "" if its
/// location holds no name.
std::string nodeOf(mlir::Location location);

/// Returns true if `value` is computed from a parameter or buffer. Looks at no
/// more than `mostOps` ops, and returns false if none of these loads one.
bool dependsOnLoad(mlir::Value value,
                   size_t mostOps = std::numeric_limits<size_t>::max());

} // namespace fsdpc::fsdp

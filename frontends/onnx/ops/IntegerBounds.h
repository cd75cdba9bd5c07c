// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which values the integers that a program computes can have.
#pragma once

#include "mlir/IR/Value.h"

#include <cstdint>

namespace fsdpc::frontend {

/// The least and the greatest value that an element may have.
struct IntegerBounds {
  int64_t low, high;
};

/// Returns bounds of a tensor of integers, by the ops that compute it: the
/// codes of a byte that was divided by 16 lie in [0, 15]. At worst they are
/// those of the type. Looks at a bounded number of ops.
IntegerBounds boundsOf(mlir::Value value);

} // namespace fsdpc::frontend

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells whether values that depend on parameters add up over the samples of a
// microbatch, as the numerator of a mean over targets must.
#pragma once

#include "passes/grad/SampleFlow.h"

namespace fsdpc::passes {

/// Returns true unless `value` is made from sums over samples in a way that is
/// not linear: a square of a sum, the product of two sums, a maximum.
bool addsUp(mlir::Value value, const SampleFlow &flow);

/// Returns true if the op repeats its operand along `axis` of its result, or
/// might: an operand of one element, or one that is repeated where the axis is
/// not known (-1).
bool repeatsSamples(mlir::Operation *op, int64_t axis);

} // namespace fsdpc::passes

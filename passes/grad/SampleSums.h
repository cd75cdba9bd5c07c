// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells whether a loss is the sum over samples that a mean over targets must
// be.
#pragma once

#include "passes/grad/WeightedMeans.h"

namespace fsdpc::passes {

/// Returns true if `loss`, as far as it follows from the mean, is a sum over
/// samples once the mean's count is a constant: then parts of the step's mean
/// add up to the loss of all samples. The operands in `constants` count as
/// constants, too.
bool addsUp(const WeightedMean &mean, mlir::Value loss, const Uses &constants,
            const SampleFlow &flow);

} // namespace fsdpc::passes

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognises the two reductions of a softmax, which on a grid may share a loop
// over the row.
#pragma once

#include "compiler/analysis/kernels/KernelPlan.h"

namespace fsdpc::analysis {

/// Gives each maximum of a long row and the sum of exp(x - maximum) a stage of
/// their own, one after the other, and returns the number of each first one.
/// Only the two ops decide if they are such a pair, so the sum has the same
/// bits whatever else the kernel computes.
llvm::SmallVector<size_t, 1> separateOnlineStages(KernelPlan &plan);

} // namespace fsdpc::analysis

// Recognises the two reductions of a softmax, which on a grid may share a loop
// over the row.
#pragma once

#include "compiler/analysis/kernels/KernelPlan.h"

namespace fsdpc::analysis {

/// Returns the number of the first stage of a row kernel that only takes the
/// maximum of a long row and is followed by one that only sums
/// exp(x - maximum); nullopt if there is none. Whether it is one follows from
/// the two ops, so that they have the same bits in every kernel.
std::optional<size_t> onlineStage(const KernelPlan &plan);

} // namespace fsdpc::analysis

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The shapes that the plans of library calls may have. A manifest can come from
// an edited dump, and sizes of memory are computed from plans before any
// backend sees them, so the manifest's reader calls these; backends call them
// again for plans that were not read from text.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/support/status.h"

namespace fsdpc {

/// The largest size in elements or bytes. Sums and products of a few such sizes
/// with small factors fit 64 bits.
constexpr int64_t mostElements = int64_t(1) << 48;

/// Returns the number of elements of a shape, or -1 if an extent is less than
/// `least` or there are more than mostElements.
int64_t elementsOf(const std::vector<int64_t> &shape, int64_t least);

/// Each fails if an extent is less than 1, if a tensor has more than
/// mostElements, or if a list of strides, pads or kernel sizes has another
/// length than the plan's kind needs. The error names the fault and not the
/// plan.
Status checkShape(const MatmulPlan &plan);
Status checkShape(const ConvolutionPlan &plan);
Status checkShape(const PoolingPlan &plan);
Status checkShape(const AttentionPlan &plan);

} // namespace fsdpc

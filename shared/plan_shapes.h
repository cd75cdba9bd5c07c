// The shapes that the plans of library calls may have. A manifest can come from
// an edited dump, and sizes of memory are computed from plans before any
// backend sees them, so the manifest's reader calls these; backends call them
// again for plans that were not read from text.
#pragma once

#include "shared/manifest.h"
#include "shared/status.h"

namespace fsdpc {

// Each fails if an extent is less than 1, or if a list of strides, pads or
// kernel sizes has another length than the plan's kind needs. What is wrong is
// named, the plan is not.
Status checkShape(const MatmulPlan &plan);
Status checkShape(const ConvolutionPlan &plan);
Status checkShape(const PoolingPlan &plan);
Status checkShape(const AttentionPlan &plan);

} // namespace fsdpc

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts plan attributes to the plain data of the manifest. The runtime's
// libraries and the memory model read that data: it knows no MLIR. Sizes,
// strides and leading dimensions are in elements.
#pragma once

#include "compiler/dialects/rt/RTDialect.h"
#include "runtime/abi/manifest.h"

namespace fsdpc::rt {

/// `library` of a result is empty for a program of the host. A plan describes
/// one call completely; element types are the manifest's names for them.
MatmulPlan describe(MatmulPlanAttr plan);
ConvolutionPlan describe(ConvolutionPlanAttr plan);
PoolingPlan describe(PoolingPlanAttr plan);
AttentionPlan describe(AttentionPlanAttr plan);
Output describe(OutputPlanAttr plan);

} // namespace fsdpc::rt

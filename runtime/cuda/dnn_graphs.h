// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Descriptions of convolution and attention as cuDNN graphs, by cuDNN's header
// library cudnn_frontend. In cuDNN's own interface fused attention takes some
// forty nodes, plus workarounds for each release, which that library maintains.
#pragma once

#include "runtime/abi/manifest.h"

#include <cudnn_frontend.h>

namespace fsdpc::runtime {

/// Adds the nodes of a plan to `graph` and returns the number of operands. They
/// are numbered from 1 in the order of the ABI, leaving out the mask.
int describeConvolution(cudnn_frontend::graph::Graph &graph,
                        const ConvolutionPlan &plan);
int describeAttention(cudnn_frontend::graph::Graph &graph,
                      const AttentionPlan &plan, bool deterministic);

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the GPU of each rank.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/cuda/api.h"
#include "runtime/support/status.h"

namespace fsdpc::runtime {

/// Names the node that a rank runs on. Containers on several nodes may have the
/// same host name, so the boot of the node's kernel counts too.
struct NodeName {
  char host[64] = {}, boot[40] = {};
  /// Returns the name of this node. Without /proc, `boot` is empty.
  static NodeName own();
};

/// Selects this rank's GPU for the calling thread. Ranks that are threads share
/// the first GPU. If several processes on a node see the same GPUs, the first
/// takes the first, and so on. Fails if there are more such processes than
/// GPUs. All ranks call it together. `node` is where this rank runs.
Status chooseDevice(CudaApi &api, Job &job,
                    const NodeName &node = NodeName::own());

} // namespace fsdpc::runtime

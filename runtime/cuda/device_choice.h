// Which GPU belongs to which rank.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/cuda/api.h"
#include "shared/status.h"

namespace fsdpc::runtime {

// Selects this rank's GPU for the calling thread. Ranks that are threads share
// the first GPU. Of several processes on a node that see the same GPUs, the
// first takes the first, and so on. Fails if there are more such processes than
// GPUs. All ranks call it together.
Status chooseDevice(CudaApi &api, Job &job);

} // namespace fsdpc::runtime

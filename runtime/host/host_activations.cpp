// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moves activations between memory and the rank's file. The streams of
// reductions and gathers do so, beside compute; verify-rt has proven that
// nothing else touches the memory meanwhile.
#include "runtime/core/rank.h"
#include "runtime/host/host_device.h"
#include "runtime/host/host_offload.h"

namespace fsdpc::runtime {

void HostDevice::offload(fsdpc_rank &rank, const void *memory, int64_t bytes,
                         int64_t place) {
  run(FSDPC_STREAM_REDUCE, [=, &rank] {
    requireFile(rank, rank.activationFile->write(place, memory, bytes));
  });
}

void HostDevice::fetch(fsdpc_rank &rank, void *memory, int64_t bytes,
                       int64_t place) {
  run(FSDPC_STREAM_GATHER, [=, &rank] {
    requireFile(rank, rank.activationFile->read(place, memory, bytes));
  });
}

} // namespace fsdpc::runtime

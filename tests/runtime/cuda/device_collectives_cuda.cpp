// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tests of collectives on a GPU. NCCL refuses two ranks on one card, so its
// kinds run alone; ranks that are threads load from each other's memory.
#include "tests/runtime/cuda/device_collectives.h"

namespace fsdpc::testing {

void onRanks(int ranks, Kind kind, const std::function<void(Rank &)> &body,
             int groupRanks) {
  onRanksOf(cudaApi(), ranks, kind, body, 0, -1, groupRanks);
}

std::vector<std::tuple<Kind, int>> kindsAndRanks() {
  return {{Kind::peer, 1},
          {Kind::peer, 2},
          {Kind::peer, 4},
          {Kind::nccl, 1},
          {Kind::deterministic, 1}};
}

// Pinned memory has one address on both sides.
CudaStatus allocateVisible(CudaApi &api, void *&memory, size_t bytes) {
  return api.allocatePinned(memory, bytes);
}
CudaStatus freeVisible(CudaApi &api, void *memory) {
  return api.freePinned(memory);
}
std::shared_ptr<void> accessToMemory() { return nullptr; }

} // namespace fsdpc::testing

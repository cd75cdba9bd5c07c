// The memory of one rank, by kind, as a function of the number of ranks and
// threads: what the compiler prints and what the program allocates come from
// this one function.
#pragma once

#include "runtime/core/manifest.h"

#include <cstdint>
#include <string>

namespace fsdpc {

struct MemoryPlan {
  int64_t parameters = 0;  // masters and, where kept, whole compute copies
  int64_t gradients = 0;   // f32 accumulators and the arena's gradient slots at the peak
  int64_t optimizer = 0;
  int64_t gathered = 0;    // of the arena's peak
  int64_t activations = 0; // of the arena's peak; inputs and constants too
  int64_t communication = 0;
  int64_t scratchpads = 0;
  int64_t stacks = 0;
  int64_t slack = 0;       // of the arena, for maxRanks
  int64_t total() const;
};

// Elements of each rank's shard of a layout.
int64_t shardElements(const Layout &layout, int64_t ranks, int64_t alignment);

MemoryPlan planMemory(const Manifest &manifest, int ranks, int threads,
                      int ranksPerNode, int64_t communicationBytes,
                      int64_t scratchpadBytes);

} // namespace fsdpc

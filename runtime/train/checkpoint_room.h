// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The disk space that a run's checkpoints take, known before training. An old
// checkpoint is removed only when a new one is complete, so --keep K holds K +
// 1 for a while.
#pragma once

#include <cstdint>
#include <vector>

namespace fsdpc::runtime {

/// When a run writes checkpoints, and which of them stay.
struct CheckpointPlan {
  int64_t first = 0, last = 0; ///< steps done when the run begins, and ends
  int64_t every = 0;           ///< one after so many steps; 0: not by steps
  bool byTime = false;         ///< by the clock: any number of them
  int64_t keep = 0;            ///< how many stay, 0: all
  int64_t keepEvery = 0;       ///< those of multiples of this step stay too
};

/// Returns the largest number of checkpoints by which the folder grows beyond
/// those that it has (`steps`); 0 if the run has nothing to train. A run by the
/// clock without --keep counts as one checkpoint, since nobody knows how many
/// it writes.
int64_t checkpointsToAdd(const CheckpointPlan &plan,
                         const std::vector<int64_t> &steps);

} // namespace fsdpc::runtime

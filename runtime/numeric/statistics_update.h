// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Updates one element of a running statistic from the batch statistics of the
// ranks, on the host and on GPUs (runtime/cuda/kernels).
#pragma once

#include "runtime/include/fsdpc.h"
#include "runtime/numeric/bfloat16.h"

#include <cstdint>

namespace fsdpc::runtime {

/// Applies buffer = (1 - momentum) · buffer + momentum · statistic, once per
/// statistic and in their order, or once with their mean.
struct UpdateStatistics {
  float *buffer = nullptr;
  const float *statistics = nullptr; ///< of `ranks` ranks, one after the other
  int ranks = 1;
  int64_t elements = 0;
  double momentum = 0;
  bool average = false;
};

/// Returns the update with the values that the mode (FSDPC_BUFFERS_*) takes:
/// `own`, or `gathered`, which holds those of all ranks. The caller fills the
/// rest in.
inline UpdateStatistics statisticsUpdate(int32_t mode, const void *own,
                                         const float *gathered, int ranks) {
  UpdateStatistics update;
  bool local = mode == FSDPC_BUFFERS_LOCAL;
  update.statistics = local ? static_cast<const float *>(own) : gathered;
  // Rank 0's statistic is the first of those that are gathered.
  update.ranks = local || mode == FSDPC_BUFFERS_BROADCAST ? 1 : ranks;
  update.average = mode == FSDPC_BUFFERS_AVERAGE;
  return update;
}

/// Updates element `i` of the buffer. The running value is rounded to f32 after
/// each rank, as it is where ranks apply their statistics one after the other.
FSDPC_SHARED inline void updateElement(const UpdateStatistics &u, int64_t i) {
  float value = u.buffer[i];
  double sum = 0;
  for (int rank = 0; rank < u.ranks; ++rank) {
    double statistic = u.statistics[rank * u.elements + i];
    sum += statistic;
    if (!u.average)
      value = float((1 - u.momentum) * value + u.momentum * statistic);
  }
  if (u.average)
    value = float((1 - u.momentum) * value + u.momentum * (sum / u.ranks));
  u.buffer[i] = value;
}

} // namespace fsdpc::runtime

// The gradient's norm and the factor of clipping, with the same bits as on the
// host (runtime/host/host_update.cpp). A shard is cut into blocks of 4096
// elements, and a block into one segment per member, so that gaps between
// members never count. A segment is summed in eight lanes. One kernel sums the
// lanes, and a second adds everything else in order.
#pragma once

#include "runtime/cuda/kernels/grid.h"

#include <cmath>

namespace fsdpc::runtime {

constexpr int normLanes = 8;

// Elements [from, to) of a layout's gradient shard, all of one member.
struct NormSegment {
  int64_t from = 0, to = 0;
};

// The tables of one layout. Its segments and lanes follow those of the layouts
// before it.
struct NormLayout {
  const float *gradient = nullptr;
  const NormSegment *segments = nullptr;
  // Block b has the segments [blockBegins[b], blockBegins[b + 1]).
  const int64_t *blockBegins = nullptr;
  int64_t blocks = 0;
  double *lanes = nullptr; // normLanes per segment
};

constexpr int mostNormLayouts = 256; // per call: the list is a kernel argument

// Sums the lanes of every segment of the listed layouts.
struct SumSquareLanes {
  const NormLayout *layouts = nullptr;
  int32_t list[mostNormLayouts] = {};
  int count = 0;
};

// Writes to sums[i] the sum of squares of the i-th listed layout; one block of
// threads per layout.
struct SumSquares {
  const NormLayout *layouts = nullptr;
  int32_t list[mostNormLayouts] = {};
  int count = 0;
  double *sums = nullptr;
};

// Computes norm = sqrt(Σ sums) · inverseV and scale = the factor of clipping ·
// inverseV. `failed` is the index of the first sum that is not finite, or -1.
struct Clip {
  const double *sums = nullptr;
  int count = 0;
  double inverseV = 1, maxNorm = 0;
  float *scale = nullptr;
  double *norm = nullptr;
  int64_t *failed = nullptr;
};

// One thread per lane of a segment, whatever layout it belongs to.
FSDPC_SHARED inline void body(const Grid &grid, const SumSquareLanes &s) {
  for (int k = 0; k < s.count; ++k) {
    const NormLayout &layout = s.layouts[s.list[k]];
    int64_t lanes = layout.blockBegins[layout.blocks] * normLanes;
    for (int64_t i = grid.first(); i < lanes; i += grid.stride()) {
      NormSegment segment = layout.segments[i / normLanes];
      double sum = 0;
      for (int64_t e = segment.from + i % normLanes; e < segment.to;
           e += normLanes)
        sum += double(layout.gradient[e]) * layout.gradient[e];
      layout.lanes[i] = sum;
    }
  }
}

// Each thread sums one block of 4096 elements; the first thread then adds these
// sums in order, a group of blocks at a time.
FSDPC_SHARED inline void body(const Grid &grid, const SumSquares &s) {
  for (int64_t k = grid.block; k < s.count; k += grid.blocks) {
    const NormLayout &layout = s.layouts[s.list[k]];
    double total = 0;
    for (int64_t begin = 0; begin < layout.blocks; begin += grid.threads) {
      int64_t block = begin + grid.thread;
      double sum = 0;
      if (block < layout.blocks)
        for (int64_t i = layout.blockBegins[block];
             i < layout.blockBegins[block + 1]; ++i) {
          double segment = 0;
          for (int lane = 0; lane < normLanes; ++lane)
            segment += layout.lanes[i * normLanes + lane];
          sum += segment;
        }
      grid.shared[grid.thread] = sum;
      grid.synchronize();
      int64_t left = layout.blocks - begin;
      if (grid.thread == 0)
        for (int i = 0; i < grid.threads && i < left; ++i)
          total += grid.shared[i];
      grid.synchronize();
    }
    if (grid.thread == 0)
      s.sums[k] = total;
  }
}

// A single thread, since there is one value per layout.
FSDPC_SHARED inline void body(const Grid &grid, const Clip &c) {
  if (grid.first() != 0)
    return;
  double sum = 0;
  int64_t failed = -1;
  for (int i = 0; i < c.count; ++i) {
    if (failed < 0 && !std::isfinite(c.sums[i]))
      failed = i;
    sum += c.sums[i];
  }
  double norm = sqrt(sum) * c.inverseV;
  // As in torch.nn.utils.clip_grad_norm_; maxNorm 0 means no clipping. A norm
  // that is NaN gives factor 1, and `failed` ends the run.
  double factor = c.maxNorm > 0 ? c.maxNorm / (norm + 1e-6) : 1;
  *c.norm = norm;
  *c.failed = failed;
  *c.scale = float((factor < 1 ? factor : 1) * c.inverseV);
}

} // namespace fsdpc::runtime

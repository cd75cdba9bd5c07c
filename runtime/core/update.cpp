// The C ABI's functions that an update calls: norm, clipping, optimizer.
//
// The norm's sum is cut into blocks of 4096 elements from the start of each
// rank's shard, whoever holds what else, and into eight lanes within a member's
// part of a block. So neither threads nor strategies change a bit of it.
#include "runtime/core/failure.h"
#include "runtime/core/rank.h"

#include <algorithm>
#include <cmath>

using namespace fsdpc;

namespace {

constexpr int64_t optimizerGrain = 1 << 14;

double sumOfSquares(const float *values, int64_t count) {
  double lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; ++lane)
      lanes[lane] += double(values[i + lane]) * values[i + lane];
  for (int lane = 0; i < count; ++i, ++lane)
    lanes[lane] += double(values[i]) * values[i];
  double sum = 0;
  for (double lane : lanes)
    sum += lane;
  return sum;
}

double layoutSquares(fsdpc_rank &rank, const Layout &layout,
                     const LayoutBuffers &buffers) {
  int64_t first = rank.job.rank * buffers.shard;
  int64_t blocks = (buffers.shard + normBlock - 1) / normBlock;
  rank.device->parallelFor(blocks, 16, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      double sum = 0;
      int64_t from = first + block * normBlock;
      int64_t to = std::min(from + normBlock, first + buffers.shard);
      forEachMember(layout, from, to, [&](size_t, int64_t a, int64_t b) {
        sum += sumOfSquares(buffers.gradientShard + (a - first), b - a);
      });
      rank.partials[size_t(block)] = sum;
    }
  });
  double sum = 0;
  for (int64_t block = 0; block < blocks; ++block)
    sum += rank.partials[size_t(block)];
  return sum;
}

} // namespace

void fsdpc_sum_squares(fsdpc_rank *rank, int32_t count, const int32_t *layouts,
                       void *sums) {
  std::vector<int32_t> list(layouts, layouts + count);
  rank->device->run(FSDPC_STREAM_COMPUTE, [rank, list, sums] {
    for (size_t i = 0; i < list.size(); ++i)
      static_cast<double *>(sums)[i] =
          layoutSquares(*rank, rank->manifest.layouts[size_t(list[i])],
                        rank->layouts[size_t(list[i])]);
  });
}

void fsdpc_all_reduce(fsdpc_rank *rank, int32_t count, void *values) {
  rank->device->run(FSDPC_STREAM_REDUCE, [=] {
    rank->job.channel[reduceChannel]->allReduce(static_cast<double *>(values),
                                                count);
  });
}

void fsdpc_clip(fsdpc_rank *rank, int32_t count, const int32_t *layouts,
                const void *sums, double maxNorm, void *scale) {
  std::vector<int32_t> list(layouts, layouts + count);
  int64_t step = rank->step;
  rank->device->run(FSDPC_STREAM_COMPUTE, [=] {
    double sum = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      double squares = static_cast<const double *>(sums)[i];
      if (!std::isfinite(squares))
        failJob(rank->job, "step " + std::to_string(step) +
                               ": the gradient is not finite; first unit: '" +
                               rank->manifest.layouts[size_t(list[i])].unit +
                               "'; lower --lr or warm up longer");
      sum += squares;
    }
    double norm = std::sqrt(sum) * rank->inverseV;
    double factor = maxNorm > 0 ? std::min(1.0, maxNorm / (norm + 1e-6)) : 1;
    rank->norm = norm;
    *static_cast<float *>(scale) = float(factor * rank->inverseV);
  });
}

void fsdpc_optimizer(fsdpc_rank *rank, fsdpc_kernel kernel, int32_t index,
                     const void *scale) {
  const Layout &layout = rank->manifest.layouts[size_t(index)];
  LayoutBuffers &buffers = rank->layouts[size_t(index)];
  for (size_t i = 0; i < layout.members.size(); ++i)
    buffers.rates[i] = {rank->lr * layout.members[i].rate,
                        double(rank->step + 1), layout.members[i].decay, 0};

  // With whole state the part is the whole, and so are its operands.
  bool whole = layout.stateWhole;
  std::array<void *, mostStates + 5> operands;
  size_t count = 0;
  operands[count++] = whole ? buffers.masterWhole : buffers.masterShard;
  operands[count++] = whole ? buffers.gradientWhole : buffers.gradientShard;
  for (int32_t state = 0; state < layout.states; ++state)
    operands[count++] = buffers.states + state * buffers.part;
  if (layout.computeWhole && rank->manifest.computeDtype != "f32")
    operands[count++] = whole ? buffers.computeWhole : buffers.computeShard;
  operands[count++] = const_cast<void *>(scale);
  size_t rates = count;

  rank->device->run(FSDPC_STREAM_COMPUTE, [=, &layout, &buffers] {
    rank->device->parallelFor(
        buffers.part, optimizerGrain, [&](int64_t begin, int64_t end) {
          auto own = operands;
          forEachMember(layout, buffers.partBegin + begin,
                        buffers.partBegin + end,
                        [&](size_t member, int64_t from, int64_t to) {
                          own[rates] = buffers.rates[member].data();
                          kernel(from - buffers.partBegin,
                                 to - buffers.partBegin, own.data());
                        });
        });
  });
}

int64_t fsdpc::firstNonFinite(const fsdpc_rank &rank) {
  for (size_t i = 0; i < rank.layouts.size(); ++i) {
    const LayoutBuffers &buffers = rank.layouts[i];
    const float *values =
        buffers.gradientWhole ? buffers.gradientWhole : buffers.gradientShard;
    int64_t count = buffers.gradientWhole ? buffers.whole : buffers.shard;
    for (int64_t e = 0; values && e < count; ++e)
      if (!std::isfinite(values[e]))
        return int64_t(i);
  }
  return int64_t(rank.layouts.size());
}

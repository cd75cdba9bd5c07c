// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The norm of all gradients and the factor that clips them. The sum is exact
// over groups of elements (square_sum.h), so that its bits depend neither on
// the processor nor on the number of threads and ranks. The CUDA kernels have
// the same bits (runtime/cuda/kernels/norm.h).
#include "runtime/host/host_device.h"

#include "runtime/core/rank.h"
#include "runtime/host/host_offload.h"
#include "runtime/host/host_squares.h"
#include "runtime/numeric/each_processor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

namespace fsdpc::runtime {

namespace {

using FourFloats =
    float __attribute__((vector_size(16), aligned(4), may_alias));
using FourDoubles = double __attribute__((vector_size(32)));

// The same order as SquareSum::addSquares, with vectors of the processor. The
// products are exact, so no version has other bits.
FSDPC_EACH_PROCESSOR
void addVectors(const float *values, int64_t count, SquareSum &sum) {
  int64_t i = 0;
  for (; i + squareGroup <= count; i += squareGroup) {
    auto *four = reinterpret_cast<const FourFloats *>(values + i);
    FourDoubles a = __builtin_convertvector(four[0], FourDoubles);
    FourDoubles b = __builtin_convertvector(four[1], FourDoubles);
    FourDoubles c = __builtin_convertvector(four[2], FourDoubles);
    FourDoubles d = __builtin_convertvector(four[3], FourDoubles);
    FourDoubles lanes = (a * a + c * c) + (b * b + d * d);
    sum.add((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]));
    if (i % (squareGroup * SquareSum::mostAdditions) == 0)
      sum.carry();
  }
  sum.addRest(values + i, count - i);
}

} // namespace

void addSquares(const float *values, int64_t count, SquareSum &sum) {
  addVectors(values, count, sum);
}

// Sum of squares of the elements for which this rank answers, without gaps and
// padding. Threads read an offloaded gradient, and widen one of 16 bits, block
// by block.
SquareSum HostDevice::layoutSquares(fsdpc_rank &rank, int32_t index) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  GradientShard gradient = gradientShardOf(rank, index);
  int64_t first = buffers.ownOf(rank.job.rank);
  int64_t shard = buffers.shardOf(rank.job.rank);
  int64_t blocks = (buffers.own + normBlock - 1) / normBlock;
  SquareSum sum;
  std::mutex adding;
  parallelFor(blocks, 16, [&](int64_t begin, int64_t end) {
    SquareSum piece;
    std::array<float, normBlock> read;
    for (int64_t block = begin; block < end; ++block) {
      int64_t from = first + block * normBlock;
      int64_t to = std::min(from + normBlock, first + buffers.own);
      const float *values = read.data();
      if (layout.gradientOffloaded)
        readGradient(rank, index, from - shard, to - from, read.data());
      else if (gradient.type != WireType::f32)
        castToWire(gradient.at(from - shard), gradient.type, WireType::f32,
                   to - from, read.data());
      else
        values = reinterpret_cast<const float *>(gradient.at(from - shard));
      forEachMember(layout, from, to, [&](size_t, int64_t a, int64_t b) {
        addSquares(values + (a - from), b - a, piece);
      });
    }
    std::lock_guard<std::mutex> lock(adding);
    sum.add(piece); // in any order
  });
  return sum;
}

// Writes one sum per layout, of this rank's part; the program then reduces
// their digits over the ranks.
void HostDevice::sumSquares(fsdpc_rank &rank, int count, const int32_t *layouts,
                            void *sums) {
  layouts = keep(FSDPC_STREAM_COMPUTE, layouts, count);
  run(FSDPC_STREAM_COMPUTE, [this, &rank, count, layouts, sums] {
    for (int i = 0; i < count; ++i)
      layoutSquares(rank, layouts[i])
          .write(static_cast<double *>(sums) + i * normDigits);
  });
}

// The sums are of accumulated gradients, hence the factor (1/V, and 1 / the
// loss's scale) in the norm and in the result. The constant 1e-6 is that of
// PyTorch's clip_grad_norm_. With a dynamic loss scale or --on-nonfinite a
// gradient that is not finite makes the optimizers of this step do nothing.
void HostDevice::clip(fsdpc_rank &rank, int count, const int32_t *layouts,
                      const void *sums, double maxNorm, void *scale) {
  int64_t step = rank.step;
  double toMean = rank.numbers.gradientFactor;
  layouts = keep(FSDPC_STREAM_COMPUTE, layouts, count);
  run(FSDPC_STREAM_COMPUTE, [this, &rank, count, layouts, sums, maxNorm, scale,
                             step, toMean] {
    // The sums are the same on every rank, so all ranks stop at the same
    // layout.
    int64_t failed;
    double sum = sumOfSquares(static_cast<const double *>(sums), count, failed);
    reported.nonFinite = failed < 0 ? -1 : layouts[failed];
    if (failed >= 0 && !rank.skipsNonFinite)
      stopAtGradient(rank, step, layouts[failed]);
    double norm = std::sqrt(sum) * toMean;
    double factor = maxNorm > 0 ? std::min(1.0, maxNorm / (norm + 1e-6)) : 1;
    reported.norm = norm;
    *static_cast<float *>(scale) = float(factor * toMean);
  });
}

} // namespace fsdpc::runtime

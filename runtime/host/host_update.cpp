// The update on the host: norm, clipping, sums per member, optimizer. The
// norm's sum is exact over groups of elements (square_sum.h), so that its bits
// depend neither on the processor nor on the number of threads and ranks. The
// CUDA kernels have the same bits (runtime/cuda/kernels/norm.h).
#include "runtime/host/host_device.h"

#include "runtime/comm/each_processor.h"
#include "runtime/core/rank.h"
#include "runtime/core/square_sum.h"
#include "runtime/host/host_factors.h"
#include "runtime/host/host_muon.h"
#include "shared/member_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

namespace fsdpc::runtime {

namespace {

constexpr int64_t optimizerGrain = 1 << 14; // elements per piece of a thread
constexpr int64_t sumBlock = 4096;          // elements per partial sum

using FourFloats =
    float __attribute__((vector_size(16), aligned(4), may_alias));
using FourDoubles = double __attribute__((vector_size(32)));

// SquareSum::addSquares, with the same order and vectors of the processor. The
// products are exact, so no version has other bits.
FSDPC_EACH_PROCESSOR
void addSquares(const float *values, int64_t count, SquareSum &sum) {
  int64_t i = 0;
  for (; i + squareGroup <= count; i += squareGroup) {
    auto *four = reinterpret_cast<const FourFloats *>(values + i);
    FourDoubles a = __builtin_convertvector(four[0], FourDoubles);
    FourDoubles b = __builtin_convertvector(four[1], FourDoubles);
    FourDoubles c = __builtin_convertvector(four[2], FourDoubles);
    FourDoubles d = __builtin_convertvector(four[3], FourDoubles);
    FourDoubles lanes = (a * a + c * c) + (b * b + d * d);
    sum.add((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]));
    // Before so many groups have been added that a digit could overflow.
    if (i % (squareGroup * SquareSum::mostAdditions) == 0)
      sum.carry();
  }
  sum.addRest(values + i, count - i);
}

} // namespace

// Sum of squares of the elements for which this rank answers, without gaps and
// padding.
SquareSum HostDevice::layoutSquares(fsdpc_rank &rank, int32_t index) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  int64_t first = buffers.ownOf(rank.job.rank);
  const float *own =
      buffers.gradientShard + (first - buffers.shardOf(rank.job.rank));
  int64_t blocks = (buffers.own + normBlock - 1) / normBlock;
  SquareSum sum;
  std::mutex adding;
  parallelFor(blocks, 16, [&](int64_t begin, int64_t end) {
    SquareSum piece;
    for (int64_t block = begin; block < end; ++block) {
      int64_t from = first + block * normBlock;
      int64_t to = std::min(from + normBlock, first + buffers.own);
      forEachMember(layout, from, to, [&](size_t, int64_t a, int64_t b) {
        addSquares(own + (a - first), b - a, piece);
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
  double toMean = rank.gradientFactor;
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
    // A limit of 0 clips nothing.
    double factor = maxNorm > 0 ? std::min(1.0, maxNorm / (norm + 1e-6)) : 1;
    reported.norm = norm;
    *static_cast<float *>(scale) = float(factor * toMean);
  });
}

// The rates change from step to step and are read when the kernel runs. They
// may be overwritten only after that, which the loop's synchronize after each
// update guarantees.
static void setRates(fsdpc_rank &rank, int32_t index) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  LayoutBuffers &buffers = rank.layouts[size_t(index)];
  // The rate, the member's step, its decay, and a place that kernels do not
  // read.
  for (size_t i = 0; i < layout.members.size(); ++i)
    // Steps count from 1 here, as in Adam's bias correction.
    buffers.rates[i] = {rank.lr * layout.members[i].rate,
                        double(rank.updates + 1 - buffers.since[i]),
                        layout.members[i].decay, 0};
}

// Sums each member's elements in this rank's shard, in blocks that count from
// the member's first element and are added in their order. The kernel has
// summed groups of elements.
void HostDevice::sumMembers(const fsdpc_rank &rank, const fsdpc_kernel &kernel,
                            int32_t index, int32_t perMember, const void *scale,
                            const double *factors, double *sums) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  // Replicas of a shard sum a part of it each.
  int64_t first = buffers.ownOf(rank.job.rank);
  pieces.clear();
  forEachMember(layout, first, first + buffers.own,
                [&](size_t member, int64_t from, int64_t to) {
                  int64_t base = layout.members[member].offset;
                  while (from < to) {
                    int64_t end =
                        base + ((from - base) / sumBlock + 1) * sumBlock;
                    end = std::min(end, to);
                    pieces.push_back({member, from, end});
                    from = end;
                  }
                });
  size_t count = size_t(perMember);
  // Grows in the first step only.
  if (partials.size() < pieces.size() * count)
    partials.resize(pieces.size() * count);
  OptimizerOperands operands =
      memberSumOperands(rank, index, scale, factors != nullptr);
  parallelFor(int64_t(pieces.size()), 4, [&](int64_t begin, int64_t end) {
    std::array<double, sumBlock / sumGroup * mostSums> groups;
    std::array<float, sumBlock> variances;
    auto own = operands; // a copy per piece of a thread
    for (auto piece = size_t(begin); piece < size_t(end); ++piece) {
      auto [member, from, to] = pieces[piece];
      if (factors)
        own.list[numberOperand] =
            variancesOf(buffers, layout.members[member], member, factors, from,
                        to, variances.data());
      own.list[own.count] = const_cast<double *>(buffers.rates[member].data());
      own.list[own.count + 1] = groups.data();
      kernel.host(from - buffers.partBegin, to - buffers.partBegin,
                  own.list.data());
      double *partial = &partials[piece * count];
      std::fill(partial, partial + count, 0.0);
      // The kernel wrote one sum per group of elements, those of one group
      // together.
      size_t values = size_t((to - from + sumGroup - 1) / sumGroup) * count;
      for (size_t i = 0; i < values; ++i)
        partial[i % count] += groups[i];
    }
  });
  // Members of which this rank holds nothing add 0.
  std::fill(sums, sums + layout.members.size() * count, 0.0);
  for (size_t piece = 0; piece < pieces.size(); ++piece)
    for (size_t i = 0; i < count; ++i)
      sums[pieces[piece].member * count + i] += partials[piece * count + i];
}

// A rank sums its shard, also where it keeps the whole state.
void HostDevice::memberSums(fsdpc_rank &rank, const fsdpc_kernel *kernel,
                            int32_t count, const int32_t *layouts,
                            const void *scale, int32_t perMember, void *sums,
                            const void *factors) {
  // Now, on the loop's thread; the lambda runs later.
  for (int32_t i = 0; i < count; ++i)
    setRates(rank, layouts[i]);
  layouts = keep(FSDPC_STREAM_COMPUTE, layouts, count);
  run(FSDPC_STREAM_COMPUTE, [=, this, &rank] {
    auto *to = static_cast<double *>(sums);
    auto *ofLayout = static_cast<const double *>(factors);
    for (int32_t i = 0; i < count; ++i) {
      sumMembers(rank, *kernel, layouts[i], perMember, scale, ofLayout, to);
      if (factors)
        ofLayout += countOf(rank.layouts[size_t(layouts[i])].factors);
      to += rank.manifest.layouts[size_t(layouts[i])].members.size() *
            size_t(perMember);
    }
  });
}

// With sums the rates have been set for them, and a kernel that reads these may
// be running.
void HostDevice::optimizer(fsdpc_rank &rank, const fsdpc_kernel *kernel,
                           int32_t index, const void *scale, int32_t perMember,
                           const void *sums, const void *factors,
                           const void *updates) {
  if (!sums)
    setRates(rank, index);
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  LayoutBuffers &buffers = rank.layouts[size_t(index)];

  OptimizerOperands operands =
      optimizerOperands(rank, index, scale, factors || updates);
  fsdpc_kernel_body body = kernel->host;

  run(FSDPC_STREAM_COMPUTE, [=, this, &layout, &buffers] {
    if (reported.nonFinite >= 0)
      return;
    parallelFor(buffers.part, optimizerGrain, [&](int64_t begin, int64_t end) {
      // A copy per piece: the last operands are the rates and the sums of the
      // member at hand.
      auto own = operands;
      // In blocks, so that the variances of a piece lie on the stack.
      std::array<float, sumBlock> variances;
      auto runBlock = [&](int64_t from, int64_t to) {
        body(from - buffers.partBegin, to - buffers.partBegin, own.list.data());
      };
      forEachMember(layout, buffers.partBegin + begin, buffers.partBegin + end,
                    [&](size_t member, int64_t from, int64_t to) {
                      own.list[own.count] = buffers.rates[member].data();
                      own.list[own.count + 1] = const_cast<double *>(
                          sums ? static_cast<const double *>(sums) +
                                     member * size_t(perMember)
                               : nullptr);
                      if (updates)
                        own.list[numberOperand] =
                            updatesOf(buffers, layout, member, updates);
                      if (!factors)
                        return runBlock(from, to);
                      for (; from < to; from += sumBlock) {
                        int64_t last = std::min(from + sumBlock, to);
                        own.list[numberOperand] =
                            variancesOf(buffers, layout.members[member], member,
                                        static_cast<const double *>(factors),
                                        from, last, variances.data());
                        runBlock(from, last);
                      }
                    });
    });
  });
}

} // namespace fsdpc::runtime

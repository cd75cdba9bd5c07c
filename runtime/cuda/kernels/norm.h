// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The gradient's norm and the factor of clipping, with the same bits as on the
// host: sums of squares are exact (runtime/numeric/square_sum.h), so threads
// may add in any order. A shard is cut at members and every 4096 elements. One
// kernel sums these segments, and a second adds them per layout.
#pragma once

#include "runtime/cuda/kernels/grid.h"
#include "runtime/numeric/float16.h"
#include "runtime/numeric/square_sum.h"
#include "runtime/numeric/wire_type.h"

#include <cmath>

namespace fsdpc::runtime {

/// Elements [from, to) of a layout's gradient shard, all of one member. In
/// elements of the shard, without gaps and padding.
struct NormSegment {
  int64_t from = 0, to = 0;
};

/// Elements [from, to) of the part of a layout that this rank updates, all of
/// `member`. Kernels of programs read it, too.
struct UpdateSegment {
  int64_t from = 0, to = 0, member = 0;
};

/// The tables of one layout.
struct NormLayout {
  const void *gradient = nullptr;
  const NormSegment *segments = nullptr;
  int64_t segmentCount = 0;
  SquareSum *sums = nullptr;     ///< one per segment
  WireType type = WireType::f32; ///< of the gradient
};

constexpr int mostNormLayouts =
    256; ///< per call: the list is a kernel argument

/// Sums every segment of the listed layouts.
struct SumSquareSegments {
  const NormLayout *layouts = nullptr;
  int32_t list[mostNormLayouts] = {};
  int count = 0;
};

/// A loss that is not finite is told to all ranks in the sum of the first
/// layout: this number is added to a digit, which otherwise stays below 2^53.
constexpr double lossMark = 0x1p100;

/// Writes to sums[i * normDigits …] the sum of squares of the i-th listed
/// layout; one block of threads per layout. `losses` are those of this rank's
/// microbatches, with their divisors behind them; null if they do not matter.
struct SumSquares {
  const NormLayout *layouts = nullptr;
  int32_t list[mostNormLayouts] = {};
  int count = 0;
  double *sums = nullptr;
  const float *losses = nullptr;
  int64_t microbatches = 0;
};

/// Adds up what the kernel of fsdpc_member_sums has written for a list of
/// segments: `room` numbers per segment, which begin with `perMember` sums of
/// each of its groups. Writes `perMember` sums per segment.
struct SumGroups {
  const UpdateSegment *segments = nullptr;
  int64_t count = 0, room = 0;
  int perMember = 1;
  const double *groups = nullptr;
  SquareSum *sums = nullptr;
};

/// Writes normDigits numbers for each member and sum. Member m has the segments
/// from firsts[m] up to firsts[m + 1]. One block of threads per sum.
struct SumMembers {
  const int64_t *firsts = nullptr;
  int64_t members = 0;
  int perMember = 1;
  const SquareSum *sums = nullptr;
  double *digits = nullptr;
};

/// Rounds `count` sums over all ranks.
struct RoundSums {
  const double *digits = nullptr;
  int64_t count = 0;
  double *sums = nullptr;
};

/// Takes normDigits numbers per layout. Computes norm = sqrt(Σ sums) · toMean
/// and scale = the factor of clipping · toMean. `failed` is the index of the
/// first sum that is not finite, `count` if only a loss is not, or -1. With
/// `skips` the scale is then NaN, at which optimizers change nothing. All
/// pointers are to device memory.
struct Clip {
  const double *sums = nullptr;
  int count = 0;
  const double *toMean = nullptr; ///< of the step: graphs keep only the address
  double maxNorm = 0;
  bool skips = false;
  float *scale = nullptr;
  double *norm = nullptr;
  int64_t *failed = nullptr;
};

/// The sum of a segment whose elements have type T in memory.
template <typename T>
FSDPC_SHARED SquareSum squaresOf(const NormLayout &layout,
                                 NormSegment segment) {
  SquareSum sum;
  sum.addSquares(static_cast<const T *>(layout.gradient) + segment.from,
                 segment.to - segment.from);
  return sum;
}

/// One thread per segment, whatever layout it belongs to.
FSDPC_SHARED inline void body(const Grid &grid, const SumSquareSegments &s) {
  for (int k = 0; k < s.count; ++k) {
    const NormLayout &layout = s.layouts[s.list[k]];
    for (int64_t i = grid.first(); i < layout.segmentCount;
         i += grid.stride()) {
      NormSegment segment = layout.segments[i];
      layout.sums[i] =
          layout.type == WireType::bf16  ? squaresOf<BFloat16>(layout, segment)
          : layout.type == WireType::f16 ? squaresOf<Float16>(layout, segment)
                                         : squaresOf<float>(layout, segment);
    }
  }
}

/// Returns true if a loss counts and is not finite.
FSDPC_SHARED inline bool hasBadLoss(const SumSquares &s) {
  for (int64_t i = 0; s.losses && i < s.microbatches; ++i)
    if (s.losses[s.microbatches + i] != 0 && !std::isfinite(s.losses[i]))
      return true;
  return false;
}

/// Writes the sum of what the block's threads have. Digits are whole numbers
/// below 2^53 in total, so the sum is exact.
FSDPC_SHARED inline void writeTogether(const Grid &grid, const SquareSum &own,
                                       double *to) {
  double digits[normDigits];
  own.write(digits);
  for (int i = 0; i < normDigits; ++i) {
    double digit = grid.sum(digits[i]);
    if (grid.thread == 0)
      to[i] = digit;
  }
}

/// Each thread adds some segments.
FSDPC_SHARED inline void body(const Grid &grid, const SumSquares &s) {
  for (int64_t k = grid.block; k < s.count; k += grid.blocks) {
    const NormLayout &layout = s.layouts[s.list[k]];
    SquareSum sum;
    for (int64_t i = grid.thread; i < layout.segmentCount; i += grid.threads)
      sum.add(layout.sums[i]);
    writeTogether(grid, sum, s.sums + k * normDigits);
    if (k == 0 && grid.thread == 0 && hasBadLoss(s))
      s.sums[0] += lossMark;
  }
}

/// One thread per segment and sum.
FSDPC_SHARED inline void body(const Grid &grid, const SumGroups &s) {
  for (int64_t i = grid.first(); i < s.count * s.perMember;
       i += grid.stride()) {
    int64_t segment = i / s.perMember;
    const UpdateSegment &of = s.segments[segment];
    const double *groups = s.groups + segment * s.room + i % s.perMember;
    SquareSum sum;
    for (int64_t element = of.from; element < of.to; element += squareGroup) {
      sum.add(*groups);
      groups += s.perMember;
    }
    sum.carry();
    s.sums[i] = sum;
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const SumMembers &s) {
  for (int64_t k = grid.block; k < s.members * s.perMember; k += grid.blocks) {
    int64_t member = k / s.perMember;
    SquareSum sum;
    for (int64_t i = s.firsts[member] + grid.thread; i < s.firsts[member + 1];
         i += grid.threads)
      sum.add(s.sums[i * s.perMember + k % s.perMember]);
    writeTogether(grid, sum, s.digits + k * normDigits);
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const RoundSums &r) {
  int64_t failed; // an infinite sum is the optimizer's to judge
  for (int64_t i = grid.first(); i < r.count; i += grid.stride())
    r.sums[i] = sumOfSquares(r.digits + i * normDigits, 1, failed);
}

/// One block: its threads add some layouts each, and then their digits, which
/// remain whole numbers below 2^53, so any order gives the same bits.
FSDPC_SHARED inline void body(const Grid &grid, const Clip &c) {
  if (grid.block != 0)
    return;
  SquareSum own;
  int64_t first = c.count; // layout whose sum is not finite
  bool badLoss = std::isfinite(c.sums[0]) && c.sums[0] >= lossMark;
  for (int64_t i = badLoss ? grid.thread + 1 : grid.thread; i < c.count;
       i += grid.threads) {
    const double *sums = c.sums + i * normDigits;
    // The first digit holds what is not finite.
    if (first == c.count && !std::isfinite(sums[0]))
      first = i;
    own.addWritten(sums);
  }
  double total[normDigits];
  own.write(total);
  for (double &digit : total)
    digit = grid.sum(digit);
  first =
      grid.reduce(first, [](int64_t a, int64_t b) { return a < b ? a : b; });
  if (grid.thread != 0)
    return;
  int64_t failed;
  double norm = sqrt(sumOfSquares(total, 1, failed)) * *c.toMean;
  if (badLoss)
    norm = double(NAN);
  failed = first < c.count || badLoss ? first : -1;
  // The factor is that of torch.nn.utils.clip_grad_norm_; maxNorm 0 means no
  // clipping. A norm that is NaN gives factor 1, and `failed` ends the run.
  double factor = c.maxNorm > 0 ? c.maxNorm / (norm + 1e-6) : 1;
  *c.norm = norm;
  *c.failed = failed;
  *c.scale = c.skips && failed >= 0
                 ? float(NAN)
                 : float((factor < 1 ? factor : 1) * *c.toMean);
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Casts to the wire type and sums over ranks, with the same bits as on the host
// (runtime/numeric/reduce.h). Sums run in rank order in f32. Four elements are
// handled at a time, so that accesses are 16 bytes wide.
#pragma once

#include "runtime/cuda/kernels/blocks.h"
#include "runtime/numeric/float16.h"
#include "runtime/numeric/wire_type.h"

namespace fsdpc::runtime {

/// The largest number of ranks whose values may lie at unrelated addresses. The
/// values of more ranks must lie at a constant stride.
constexpr int mostAddends = 64;

/// Casts from[i] to to[i], and fills [elements, padded) with zeroes. `to` has
/// `padded` elements and is aligned for four of them.
struct Cast {
  const void *from = nullptr;
  void *to = nullptr;
  WireType fromType = WireType::f32, toType = WireType::f32;
  int64_t elements = 0, padded = 0;
};

/// Overwrites shard[i] with the sum of the ranks' values, each rounded to
/// `wire`, or with `add` adds them one rank after the other. Values from
/// `elements` on count as zero. The shard may lie inside one of the parts, but
/// not with `add`.
struct SumRanks {
  /// The addends of this rank's shard. Memory of other ranks must be mapped,
  /// and what fills it must be done: the kernel does not wait for anybody.
  const void *parts[mostAddends] = {};
  const void *first = nullptr; ///< instead of `parts`: `stride` elements apart
  int64_t stride = 0;
  int ranks = 1;
  WireType type = WireType::f32, wire = WireType::f32;
  int64_t elements = 0, shardElements = 0;
  float *shard = nullptr;
  bool add = false;
  /// Unless None, all parts are in such blocks, whatever `type` says, and the
  /// stride and the shard are whole blocks.
  BlockForm blocks;
};

/// Writes to values[i] the sum of parts[r][i] over the ranks r, in rank order.
/// Parts are given as above.
struct SumDoubles {
  const double *parts[mostAddends] = {};
  const double *first = nullptr;
  int ranks = 1, count = 0;
  double *values = nullptr;
};

/// Four elements at a time while all four are real, then single ones.
template <typename From, typename To>
FSDPC_SHARED void castAll(const Grid &grid, const Cast &c) {
  auto *from = static_cast<const From *>(c.from);
  auto *to = static_cast<To *>(c.to);
  auto *from4 = static_cast<const Four<From> *>(c.from);
  auto *to4 = static_cast<Four<To> *>(c.to);
  for (int64_t i = grid.first(); i < c.padded / 4; i += grid.stride()) {
    Four<To> values;
    if (4 * i + 4 <= c.elements) {
      Four<From> wide = from4[i];
      for (int k = 0; k < 4; ++k)
        values.at[k] = narrow<To>(widen(wide.at[k]));
    } else {
      for (int k = 0; k < 4; ++k)
        values.at[k] =
            narrow<To>(4 * i + k < c.elements ? widen(from[4 * i + k]) : 0.0f);
    }
    to4[i] = values;
  }
  for (int64_t i = c.padded / 4 * 4 + grid.first(); i < c.padded;
       i += grid.stride())
    to[i] = narrow<To>(i < c.elements ? widen(from[i]) : 0.0f);
}

template <typename To>
FSDPC_SHARED void castTo(const Grid &grid, const Cast &c) {
  c.fromType == WireType::f32    ? castAll<float, To>(grid, c)
  : c.fromType == WireType::bf16 ? castAll<BFloat16, To>(grid, c)
                                 : castAll<Float16, To>(grid, c);
}

/// Chooses the pair of types. Equal types copy, which the padding may need.
FSDPC_SHARED inline void body(const Grid &grid, const Cast &c) {
  c.toType == WireType::f32    ? castTo<float>(grid, c)
  : c.toType == WireType::bf16 ? castTo<BFloat16>(grid, c)
                               : castTo<Float16>(grid, c);
}

/// An addend's element as the other ranks receive it: rounded to the wire type.
template <typename T> FSDPC_SHARED float travelled(T value, WireType wire) {
  float wide = widen(value);
  return wire == WireType::f32    ? wide
         : wire == WireType::bf16 ? widen(narrow<BFloat16>(wide))
                                  : widen(narrow<Float16>(wide));
}

/// Returns where a rank's values begin.
template <typename T>
FSDPC_SHARED const T *addend(const SumRanks &s, int rank) {
  return s.first ? static_cast<const T *>(s.first) + rank * s.stride
                 : static_cast<const T *>(s.parts[rank]);
}

/// Each thread sums whole elements over all ranks, in rank order, so the bits
/// do not depend on the grid.
template <typename T>
FSDPC_SHARED void sumAll(const Grid &grid, const SumRanks &s) {
  // The shard's or the first rank's value starts the sum, as on the host:
  // adding it to 0 would turn -0 into +0.
  auto one = [&](int64_t i) {
    float sum = s.add ? s.shard[i] : 0.0f;
    for (int rank = 0; rank < s.ranks; ++rank) {
      float value =
          i < s.elements ? travelled(addend<T>(s, rank)[i], s.wire) : 0.0f;
      sum = rank == 0 && !s.add ? value : sum + value;
    }
    s.shard[i] = sum;
  };
  int64_t fours = s.elements / 4;
  auto *shard4 = reinterpret_cast<Four<float> *>(s.shard);
  for (int64_t i = grid.first(); i < fours; i += grid.stride()) {
    Four<float> sums = {};
    if (s.add)
      sums = shard4[i];
    for (int rank = 0; rank < s.ranks; ++rank) {
      Four<T> values = reinterpret_cast<const Four<T> *>(addend<T>(s, rank))[i];
      for (int k = 0; k < 4; ++k) {
        float value = travelled(values.at[k], s.wire);
        sums.at[k] = rank == 0 && !s.add ? value : sums.at[k] + value;
      }
    }
    shard4[i] = sums;
  }
  // The last elements, and the padding behind them, which becomes zero or stays
  // what it was.
  for (int64_t i = 4 * fours + grid.first(); i < s.shardElements;
       i += grid.stride())
    one(i);
}

/// All elements of the shard, from the blocks of each rank.
FSDPC_SHARED inline void sumBlocks(const Grid &grid, const SumRanks &s) {
  auto *shard4 = reinterpret_cast<Four<float> *>(s.shard);
  int64_t stride = s.stride / blockElements * s.blocks.bytes;
  for (int64_t i = grid.first(); i < s.shardElements / 4; i += grid.stride()) {
    Four<float> sums = {};
    if (s.add)
      sums = shard4[i];
    for (int rank = 0; rank < s.ranks; ++rank) {
      const void *part =
          s.first ? static_cast<const char *>(s.first) + rank * stride
                  : s.parts[rank];
      Four<float> values = widenFour(part, s.blocks, i);
      for (int k = 0; k < 4; ++k)
        sums.at[k] =
            rank == 0 && !s.add ? values.at[k] : sums.at[k] + values.at[k];
    }
    shard4[i] = sums;
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const SumRanks &s) {
  if (s.blocks.type != BlockType::None)
    return sumBlocks(grid, s);
  s.type == WireType::f32    ? sumAll<float>(grid, s)
  : s.type == WireType::bf16 ? sumAll<BFloat16>(grid, s)
                             : sumAll<Float16>(grid, s);
}

/// All ranks compute it, each for itself, and get the same bits.
FSDPC_SHARED inline void body(const Grid &grid, const SumDoubles &s) {
  for (int64_t i = grid.first(); i < s.count; i += grid.stride()) {
    double sum = 0;
    for (int rank = 0; rank < s.ranks; ++rank)
      sum += s.first ? s.first[int64_t(rank) * s.count + i] : s.parts[rank][i];
    s.values[i] = sum;
  }
}

} // namespace fsdpc::runtime

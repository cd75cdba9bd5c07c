// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocks of 8 and 4 bits, with the same bits as on the host
// (runtime/numeric/blocks.h). Threads handle four adjacent elements each, so a
// team of 64 makes a block.
#pragma once

#include "runtime/cuda/kernels/grid.h"
#include "runtime/numeric/block_codes.h"
#include "runtime/numeric/float16.h"
#include "runtime/numeric/magnitude.h"
#include "runtime/numeric/wire_type.h"

namespace fsdpc::runtime {

/// The type of blocks, and the bytes of one.
struct BlockForm {
  BlockType type = BlockType::None;
  int64_t bytes = 0;
};

/// Elements [begin, end) of a layout, which are those of one member.
struct MemberRange {
  int64_t begin = 0, end = 0;
};

/// Converts `count` blocks. Elements outside of all ranges count as zero,
/// whatever their memory holds; a block has elements of one range at most. All
/// memory is aligned for four elements.
struct ToBlocks {
  const void *from = nullptr;
  WireType type = WireType::f32;
  void *to = nullptr;
  BlockForm form;
  int64_t count = 0;
  /// In the order of their places. Null: there is one, [0, elements).
  const MemberRange *ranges = nullptr;
  int64_t rangeCount = 0, elements = 0;
};

/// Writes `elements` values of blocks, a multiple of four, in the type.
struct FromBlocks {
  const void *from = nullptr;
  BlockForm form;
  void *to = nullptr;
  WireType type = WireType::f32;
  int64_t elements = 0;
};

/// Returns how many elements from `begin` on lie in the range that has it.
FSDPC_SHARED inline int64_t realElements(const ToBlocks &t, int64_t begin) {
  if (!t.ranges)
    return t.elements - begin;
  int64_t low = 0, high = t.rangeCount; // of the first range that ends after it
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (t.ranges[middle].end <= begin)
      low = middle + 1;
    else
      high = middle;
  }
  return low < t.rangeCount && t.ranges[low].begin <= begin
             ? t.ranges[low].end - begin
             : 0;
}

/// Returns four values from `at` on, of which the first `real` are read.
template <typename T>
FSDPC_SHARED Four<float> readFour(const void *from, int64_t at, int64_t real) {
  auto *values = static_cast<const T *>(from);
  Four<float> wide = {};
  if (real >= 4) {
    Four<T> all = reinterpret_cast<const Four<T> *>(values)[at / 4];
    for (int k = 0; k < 4; ++k)
      wide.at[k] = widen(all.at[k]);
  } else {
    for (int k = 0; k < real; ++k)
      wide.at[k] = widen(values[at + k]);
  }
  return wide;
}

/// Rounds four values to codes, and writes them at place `i` of a block's
/// fours.
FSDPC_SHARED inline void roundFour(const Four<float> &values, float factor,
                                   BlockType type, void *codes, int i) {
  uint32_t code[4];
  for (int k = 0; k < 4; ++k)
    code[k] = factor == 0                 ? 0
              : type == BlockType::F8E4M3 ? roundToF8(values.at[k] * factor)
                                          : roundToI8(values.at[k] * factor);
  if (type == BlockType::I4)
    static_cast<uint16_t *>(codes)[i] =
        uint16_t(joinI4(uint8_t(code[0]), uint8_t(code[1])) |
                 joinI4(uint8_t(code[2]), uint8_t(code[3])) << 8);
  else
    static_cast<uint32_t *>(codes)[i] =
        code[0] | code[1] << 8 | code[2] << 16 | code[3] << 24;
}

/// Returns the values of the i-th four elements of blocks.
FSDPC_SHARED inline Four<float> widenFour(const void *blocks,
                                          const BlockForm &form, int64_t i) {
  constexpr int64_t fours = blockElements / 4;
  auto *block = static_cast<const char *>(blocks) + i / fours * form.bytes;
  float scale = *reinterpret_cast<const float *>(block + form.bytes - 4);
  Four<float> wide;
  if (form.type == BlockType::I4) {
    uint16_t codes = reinterpret_cast<const uint16_t *>(block)[i % fours];
    for (int k = 0; k < 2; ++k) {
      auto pair = uint8_t(codes >> 8 * k);
      wide.at[2 * k] = evenOfI4(pair) * scale;
      wide.at[2 * k + 1] = oddOfI4(pair) * scale;
    }
    return wide;
  }
  uint32_t codes = reinterpret_cast<const uint32_t *>(block)[i % fours];
  for (int k = 0; k < 4; ++k) {
    auto code = uint8_t(codes >> 8 * k);
    wide.at[k] =
        (form.type == BlockType::F8E4M3 ? widenF8(code) : widenI8(code)) *
        scale;
  }
  return wide;
}

/// All teams of a block of threads take as many turns, since they meet in each.
template <typename T>
FSDPC_SHARED void toBlocks(const Grid &grid, const ToBlocks &t) {
  constexpr int fours = blockElements / 4;
  int width = grid.threads < fours ? grid.threads : fours;
  int teams = grid.threads / width, lane = grid.thread % width;
  for (int64_t first = grid.block * teams; first < t.count;
       first += grid.blocks * teams) {
    int64_t block = first + grid.thread / width;
    int64_t begin = block * blockElements;
    int64_t real = block < t.count ? realElements(t, begin) : 0;
    uint32_t largest = 0;
    for (int i = lane; i < fours; i += width) {
      Four<float> values = readFour<T>(t.from, begin + 4 * i, real - 4 * i);
      for (float value : values.at)
        largest = magnitudeOf(value) > largest ? magnitudeOf(value) : largest;
    }
    largest = grid.reduceIn(
        width, largest, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
    if (block >= t.count)
      continue;
    BlockScale scale = blockScale(largest, largestCode(t.form.type));
    char *to = static_cast<char *>(t.to) + block * t.form.bytes;
    for (int i = lane; i < fours; i += width)
      roundFour(readFour<T>(t.from, begin + 4 * i, real - 4 * i), scale.factor,
                t.form.type, to, i);
    if (lane == 0)
      *reinterpret_cast<float *>(to + t.form.bytes - 4) = scale.scale;
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const ToBlocks &t) {
  t.type == WireType::f32    ? toBlocks<float>(grid, t)
  : t.type == WireType::bf16 ? toBlocks<BFloat16>(grid, t)
                             : toBlocks<Float16>(grid, t);
}

template <typename T>
FSDPC_SHARED void fromBlocks(const Grid &grid, const FromBlocks &f) {
  auto *to4 = static_cast<Four<T> *>(f.to);
  for (int64_t i = grid.first(); i < f.elements / 4; i += grid.stride()) {
    Four<float> wide = widenFour(f.from, f.form, i);
    Four<T> values;
    for (int k = 0; k < 4; ++k)
      values.at[k] = narrow<T>(wide.at[k]);
    to4[i] = values;
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const FromBlocks &f) {
  f.type == WireType::f32    ? fromBlocks<float>(grid, f)
  : f.type == WireType::bf16 ? fromBlocks<BFloat16>(grid, f)
                             : fromBlocks<Float16>(grid, f);
}

} // namespace fsdpc::runtime

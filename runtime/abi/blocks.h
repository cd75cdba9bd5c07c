// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values that travel between ranks in 8 or 4 bits: blocks of elements with one
// scale each, as in ZeRO++ (Wang et al., ZeRO++, 2023: qwZ and qgZ). A block
// begins at a multiple of its length in a layout's flat buffer, whatever the
// number of ranks is, so that what a value is rounded to does not depend on it.
// Compiler and runtime compute the bytes by the functions below.
#pragma once

#include <cstdint>
#include <string>

namespace fsdpc {

/// Says what an element is in a block: a multiple of a 127th (I8) or of a 7th
/// (I4) of the block's largest magnitude, or a float of 4 bits of exponent and
/// 3 of mantissa (torch's float8_e4m3fn), of which 448 stands for the largest
/// magnitude.
enum class BlockType { None, I8, F8E4M3, I4 };

constexpr int64_t blockElements = 256;

/// Returns the bytes of a block: its codes, and its scale, an f32.
constexpr int64_t blockBytes(BlockType type) {
  return (type == BlockType::I4 ? blockElements / 2 : blockElements) + 4;
}

/// Returns the bytes of so many elements; the last block is padded.
constexpr int64_t blockedBytes(int64_t elements, BlockType type) {
  return (elements + blockElements - 1) / blockElements * blockBytes(type);
}

/// Parses "i8", "f8e4m3" or "i4"; any other name is None.
inline BlockType blockTypeOf(const std::string &dtype) {
  return dtype == "i8"       ? BlockType::I8
         : dtype == "f8e4m3" ? BlockType::F8E4M3
         : dtype == "i4"     ? BlockType::I4
                             : BlockType::None;
}

/// Returns the blocks of each rank's part that a reduction in blocks sends at a
/// time. All parts of a piece fit a core's cache, unless there are very many
/// ranks.
constexpr int64_t reducedBlocks(int64_t ranks, BlockType type) {
  const int64_t most = (int64_t(1) << 18) / blockBytes(type);
  return most < ranks ? 1 : most / ranks;
}

/// Returns the bytes of such pieces on one rank: what it sends to each rank,
/// and what it receives from each.
constexpr int64_t reducedPieceBytes(int64_t ranks, BlockType type) {
  return 2 * ranks * reducedBlocks(ranks, type) * blockBytes(type);
}

} // namespace fsdpc

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops are plain, so that the compiler vectorises them once per processor
// generation, with the same bits in each: there are no sums, and
// multiplications are never fused with additions here.
#include "runtime/numeric/blocks.h"
#include "runtime/numeric/block_codes.h"
#include "runtime/numeric/each_processor.h"
#include "runtime/numeric/magnitude.h"
#include "runtime/numeric/reduce.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

namespace {

FSDPC_EACH_PROCESSOR
uint32_t largestOf(const float *values) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < blockElements; ++i)
    largest = std::max(largest, magnitudeOf(values[i]));
  return largest;
}

FSDPC_EACH_PROCESSOR
void roundAllToI8(const float *values, float factor, uint8_t *codes) {
  for (int64_t i = 0; i < blockElements; ++i)
    codes[i] = roundToI8(values[i] * factor);
}

FSDPC_EACH_PROCESSOR
void roundAllToF8(const float *values, float factor, uint8_t *codes) {
  for (int64_t i = 0; i < blockElements; ++i)
    codes[i] = roundToF8(values[i] * factor);
}

FSDPC_EACH_PROCESSOR
void roundAllToI4(const float *values, float factor, uint8_t *codes) {
  uint8_t wide[blockElements];
  roundAllToI8(values, factor, wide);
  for (int64_t i = 0; i < blockElements / 2; ++i)
    codes[i] = joinI4(wide[2 * i], wide[2 * i + 1]);
}

FSDPC_EACH_PROCESSOR
void widenAllI4(const uint8_t *codes, float scale, float *to) {
  for (int64_t i = 0; i < blockElements / 2; ++i) {
    to[2 * i] = evenOfI4(codes[i]) * scale;
    to[2 * i + 1] = oddOfI4(codes[i]) * scale;
  }
}

FSDPC_EACH_PROCESSOR
void widenAllI8(const uint8_t *codes, float scale, float *to) {
  for (int64_t i = 0; i < blockElements; ++i)
    to[i] = widenI8(codes[i]) * scale;
}

FSDPC_EACH_PROCESSOR
void widenAllF8(const uint8_t *codes, float scale, float *to) {
  for (int64_t i = 0; i < blockElements; ++i)
    to[i] = widenF8(codes[i]) * scale;
}

FSDPC_EACH_PROCESSOR
void addAll(const float *from, int64_t count, float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += from[i];
}

// Loops over a block of a type.
struct Coding {
  void (*round)(const float *values, float factor, uint8_t *codes);
  void (*widen)(const uint8_t *codes, float scale, float *to);
};

Coding codingOf(BlockType type) {
  switch (type) {
  case BlockType::I4:
    return {roundAllToI4, widenAllI4};
  case BlockType::F8E4M3:
    return {roundAllToF8, widenAllF8};
  case BlockType::I8:
  case BlockType::None: // no blocks are of it
    break;
  }
  return {roundAllToI8, widenAllI8};
}

void toBlock(const float *values, const Coding &coding, Blocks block) {
  auto [scale, factor] = blockScale(largestOf(values), largestCode(block.type));
  if (factor == 0)
    memset(block.bytes, 0, size_t(blockBytes(block.type)));
  else
    coding.round(values, factor, block.codes());
  block.scale() = scale;
}

// Adds a block to elements of the shard, or begins their sum.
void addBlock(const Coding &coding, Blocks block, bool begins, float *to) {
  float values[blockElements];
  coding.widen(block.codes(), block.scale(), values);
  if (begins)
    std::copy(values, values + blockElements, to);
  else
    addAll(values, blockElements, to);
}

} // namespace

void toBlocks(const void *values, WireType type, int64_t elements,
              Blocks blocks, int64_t count) {
  Coding coding = codingOf(blocks.type);
  float wide[blockElements];
  for (int64_t i = 0; i < count; ++i) {
    int64_t begin = i * blockElements;
    int64_t real = std::clamp<int64_t>(elements - begin, 0, blockElements);
    if (real > 0)
      castToWire(static_cast<const char *>(values) +
                     size_t(begin) * elementBytes(type),
                 type, WireType::f32, real, wide);
    std::fill(wide + real, wide + blockElements, 0.0f);
    toBlock(wide, coding, blocks.from(i));
  }
}

void fromBlocks(Blocks blocks, int64_t elements, WireType type, void *values) {
  Coding coding = codingOf(blocks.type);
  float wide[blockElements];
  for (int64_t begin = 0; begin < elements; begin += blockElements) {
    Blocks block = blocks.from(begin / blockElements);
    coding.widen(block.codes(), block.scale(), wide);
    castToWire(
        wide, WireType::f32, type, std::min(blockElements, elements - begin),
        static_cast<char *>(values) + size_t(begin) * elementBytes(type));
  }
}

void sumBlocks(Blocks blocks, int64_t count, bool begins, float *to) {
  Coding coding = codingOf(blocks.type);
  for (int64_t i = 0; i < count; ++i)
    addBlock(coding, blocks.from(i), begins, to + i * blockElements);
}

} // namespace fsdpc::runtime

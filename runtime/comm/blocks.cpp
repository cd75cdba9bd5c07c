// The loops are plain, so that the compiler vectorises them once per processor
// generation, with the same bits in each: there are no sums, and
// multiplications are never fused with additions here.
#include "runtime/comm/blocks.h"
#include "runtime/comm/each_processor.h"
#include "runtime/comm/float8.h"
#include "runtime/comm/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fsdpc::runtime {

namespace {

constexpr uint32_t infinity = 0x7f800000;
constexpr float least = 0x1p-100f; // of a block that is not zero

// Magnitudes compare as the integers of their bits, with NaN above infinity.
FSDPC_EACH_PROCESSOR
uint32_t largestOf(const float *values) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < blockElements; ++i) {
    uint32_t bits;
    memcpy(&bits, values + i, sizeof bits);
    largest = std::max(largest, bits & 0x7fffffff);
  }
  return largest;
}

// Adding 1.5 · 2^23 rounds to whole numbers, ties to even.
FSDPC_EACH_PROCESSOR
void roundToI8(const float *values, float inverse, uint8_t *codes) {
  constexpr float whole = 12582912;
  for (int64_t i = 0; i < blockElements; ++i) {
    float shifted = values[i] * inverse + whole;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    codes[i] = uint8_t(bits);
  }
}

FSDPC_EACH_PROCESSOR
void roundToF8(const float *values, float inverse, uint8_t *codes) {
  for (int64_t i = 0; i < blockElements; ++i)
    codes[i] = narrow<Float8>(values[i] * inverse).bits;
}

// Two codes of four bits in a byte, as numbers from -7 to 7.
FSDPC_EACH_PROCESSOR
void roundToI4(const float *values, float inverse, uint8_t *codes) {
  uint8_t wide[blockElements];
  roundToI8(values, inverse, wide);
  for (int64_t i = 0; i < blockElements / 2; ++i)
    codes[i] = uint8_t((wide[2 * i] & 15) | wide[2 * i + 1] << 4);
}

FSDPC_EACH_PROCESSOR
void widenI4(const uint8_t *codes, float scale, float *to) {
  for (int64_t i = 0; i < blockElements / 2; ++i) {
    to[2 * i] = float(int8_t(codes[i] << 4) >> 4) * scale;
    to[2 * i + 1] = float(int8_t(codes[i]) >> 4) * scale;
  }
}

FSDPC_EACH_PROCESSOR
void widenI8(const uint8_t *codes, float scale, float *to) {
  for (int64_t i = 0; i < blockElements; ++i)
    to[i] = float(int8_t(codes[i])) * scale;
}

FSDPC_EACH_PROCESSOR
void widenF8(const uint8_t *codes, float scale, float *to) {
  for (int64_t i = 0; i < blockElements; ++i)
    to[i] = widen(Float8{codes[i]}) * scale;
}

FSDPC_EACH_PROCESSOR
void addAll(const float *from, int64_t count, float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += from[i];
}

// How a type codes an element: the code of the largest magnitude, and loops
// over a block.
struct Coding {
  float largest;
  void (*round)(const float *values, float inverse, uint8_t *codes);
  void (*widen)(const uint8_t *codes, float scale, float *to);
};

Coding codingOf(BlockType type) {
  switch (type) {
  case BlockType::I4:
    return {7, roundToI4, widenI4};
  case BlockType::F8E4M3:
    return {448, roundToF8, widenF8};
  case BlockType::I8:
  case BlockType::None: // no blocks are of it
    break;
  }
  return {127, roundToI8, widenI8};
}

void toBlock(const float *values, const Coding &coding, Blocks block) {
  uint32_t bits = largestOf(values);
  float largest;
  memcpy(&largest, &bits, sizeof largest);
  if (bits >= infinity || largest < least) {
    memset(block.bytes, 0, size_t(blockBytes(block.type)));
    block.scale() = bits >= infinity ? NAN : 0;
    return;
  }
  block.scale() = largest / coding.largest;
  coding.round(values, coding.largest / largest, block.codes());
}

// Converts the gradient's elements [begin, begin + count blocks). A block has
// elements of one member at most, since members begin with a block.
void membersToBlocks(const ReduceScatter &part, std::span<const Member> members,
                     int64_t begin, Blocks blocks, int64_t count) {
  // The first member that ends behind `begin`.
  auto member = std::partition_point(
      members.begin(), members.end(), [&](const Member &other) {
        return other.offset + other.elements <= begin;
      });
  int64_t end = begin + count * blockElements;
  for (int64_t at = begin; at < end;) {
    // Up to the member's end, or of none up to its beginning.
    bool within = member != members.end() && member->offset <= at;
    int64_t stop = member == members.end() ? end
                   : within                ? member->offset + member->elements
                                           : member->offset;
    int64_t elements = std::min(stop, end) - at;
    int64_t taken = (elements + blockElements - 1) / blockElements;
    toBlocks(gradientAt(part, at), part.type, within ? elements : 0,
             blocks.from((at - begin) / blockElements), taken);
    at += taken * blockElements;
    member += within;
  }
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
                     size_t(begin) * wireBytes(type),
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
    castToWire(wide, WireType::f32, type,
               std::min(blockElements, elements - begin),
               static_cast<char *>(values) + size_t(begin) * wireBytes(type));
  }
}

// Piece by piece. In the scratch memory each rank has a place among the blocks
// that are sent, and one among those received.
void BlockReducer::reduceScatter(Communicator &ranks, const ReduceScatter &part,
                                 std::span<const Member> members,
                                 BlockType blockType, void *scratch) {
  int count = ranks.size(), self = ranks.rank();
  int64_t all = part.shardElements / blockElements;
  int64_t most = fsdpc::reducedBlocks(count, blockType);
  Coding coding = codingOf(blockType);
  Blocks sent{static_cast<char *>(scratch), blockType};
  Blocks received = sent.from(most * count);
  ranks.countSent(size_t(all * blockBytes(blockType)));
  for (int64_t first = 0; first < all; first += most) {
    int64_t length = std::min(most, all - first);
    size_t bytes = size_t(length * blockBytes(blockType));
    sends.clear();
    receives.clear();
    for (int i = 0; i < count; ++i) {
      // Every rank begins with the one after it, so that not all send to one.
      int to = (self + i) % count, from = (self + count - i) % count;
      membersToBlocks(part, members, partOf(part, to) + first * blockElements,
                      sent.from(to * most), length);
      if (i == 0)
        continue;
      sends.push_back({to, sent.from(to * most).bytes, bytes});
      receives.push_back({from, received.from(from * most).bytes, bytes});
    }
    ranks.transfer(sends, receives);
    // The shard may lie inside the gradient, at the rank's own part, of which
    // this piece has been converted.
    for (int rank = 0; rank < count; ++rank)
      for (int64_t i = 0; i < length; ++i)
        addBlock(coding, (rank == self ? sent : received).from(rank * most + i),
                 rank == 0 && !part.add,
                 part.shard + (first + i) * blockElements);
  }
}

} // namespace fsdpc::runtime

// The loops are plain, so that the compiler vectorises them once per processor
// generation. Every version yields the same bits: elements are independent, and
// there are no multiplications that could be fused with the additions.
#include "runtime/comm/reduce.h"
#include "runtime/comm/bfloat16.h"
#include "runtime/comm/each_processor.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

namespace {

FSDPC_EACH_PROCESSOR
void widenAll(const BFloat16 *from, int64_t count, float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = widen(from[i]);
}

FSDPC_EACH_PROCESSOR
void narrowAll(const float *from, int64_t count, BFloat16 *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = narrow<BFloat16>(from[i]);
}

FSDPC_EACH_PROCESSOR
void roundAll(const float *from, int64_t count, float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = widen(narrow<BFloat16>(from[i]));
}

FSDPC_EACH_PROCESSOR
void addAll(const float *from, int64_t count, float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += from[i];
}

FSDPC_EACH_PROCESSOR
void addWidened(const BFloat16 *from, int64_t count, float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += widen(from[i]);
}

FSDPC_EACH_PROCESSOR
void addRounded(const float *from, int64_t count, float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += widen(narrow<BFloat16>(from[i]));
}

// Writes `source`, rounded to the wire type, to `to`, or adds it. A bf16 source
// needs no rounding: no wire type is narrower.
void take(const void *source, WireType type, WireType wire, int64_t count,
          float *to, bool add) {
  const float *wide = static_cast<const float *>(source);
  const BFloat16 *narrowed = static_cast<const BFloat16 *>(source);
  if (type == WireType::bf16)
    add ? addWidened(narrowed, count, to) : widenAll(narrowed, count, to);
  else if (wire == WireType::bf16)
    add ? addRounded(wide, count, to) : roundAll(wide, count, to);
  else if (add)
    addAll(wide, count, to);
  else
    memcpy(to, wide, count * sizeof(float));
}

} // namespace

void castToWire(const void *source, WireType type, WireType wire, int64_t count,
                void *destination) {
  if (type == wire)
    memcpy(destination, source, count * wireBytes(wire));
  else if (wire == WireType::f32)
    widenAll(static_cast<const BFloat16 *>(source), count,
             static_cast<float *>(destination));
  else
    narrowAll(static_cast<const float *>(source), count,
              static_cast<BFloat16 *>(destination));
}

// The first values overwrite the sums and the others are added in order; the
// shard's old value comes last.
void sumRanks(const Addend *addends, int ranks, WireType wire, int64_t count,
              float *shard, bool add, const float *initial) {
  constexpr int64_t block = 2048; // 8 KiB of sums stay in L1
  float sums[block];
  for (int64_t begin = 0; begin < count; begin += block) {
    int64_t length = std::min(block, count - begin);
    // Sums are not built in the shard, which may lie inside one of the sources.
    if (initial)
      memcpy(sums, initial + begin, length * sizeof(float));
    for (int rank = 0; rank < ranks; ++rank)
      take(static_cast<const char *>(addends[rank].values) +
               begin * wireBytes(addends[rank].type),
           addends[rank].type, wire, length, sums, rank != 0 || initial);
    if (add)
      addAll(sums, length, shard + begin);
    else
      memcpy(shard + begin, sums, length * sizeof(float));
  }
}

WireType handedOver(const ReduceScatter &part) {
  return part.type == WireType::bf16 ? part.type : part.wire;
}

// Shards of the last ranks may begin beyond the elements.
int64_t realElements(const ReduceScatter &part, int64_t begin, int64_t count) {
  return std::clamp<int64_t>(part.elements - begin, 0, count);
}

// May point past the end, where realElements() is 0.
const void *gradientAt(const ReduceScatter &part, int64_t begin) {
  return static_cast<const char *>(part.gradient) +
         begin * wireBytes(part.type);
}

} // namespace fsdpc::runtime

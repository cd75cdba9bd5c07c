// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops are plain, so that the compiler vectorises them once per processor
// generation. Every version yields the same bits: elements are independent, and
// there are no multiplications that could be fused with the additions.
#include "runtime/numeric/reduce.h"
#include "runtime/numeric/each_processor.h"
#include "runtime/numeric/float16.h"
#include "runtime/numeric/streaming.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace fsdpc::runtime {

namespace {

// Calls `body` with a value of the C++ type that holds `type`.
template <typename Body> void withType(WireType type, const Body &body) {
  switch (type) {
  case WireType::f32:
    return body(float());
  case WireType::bf16:
    return body(BFloat16());
  case WireType::f16:
    return body(Float16());
  case WireType::u8: // bytes are neither cast nor summed
    return;
  }
}

// FSDPC_EACH_PROCESSOR takes functions, not templates, hence the macro.
#define FSDPC_HALF_LOOPS(Half)                                                 \
  FSDPC_EACH_PROCESSOR                                                         \
  void widenAll(const Half *from, int64_t count, float *to) {                  \
    for (int64_t i = 0; i < count; ++i)                                        \
      to[i] = widen(from[i]);                                                  \
  }                                                                            \
  FSDPC_EACH_PROCESSOR                                                         \
  void narrowAll(const float *from, int64_t count, Half *to) {                 \
    for (int64_t i = 0; i < count; ++i)                                        \
      to[i] = narrow<Half>(from[i]);                                           \
  }                                                                            \
  FSDPC_EACH_PROCESSOR                                                         \
  void roundAll(const float *from, int64_t count, Half, float *to) {           \
    for (int64_t i = 0; i < count; ++i)                                        \
      to[i] = widen(narrow<Half>(from[i]));                                    \
  }                                                                            \
  FSDPC_EACH_PROCESSOR                                                         \
  void addWidened(const Half *from, int64_t count, float *to) {                \
    for (int64_t i = 0; i < count; ++i)                                        \
      to[i] += widen(from[i]);                                                 \
  }                                                                            \
  FSDPC_EACH_PROCESSOR                                                         \
  void addRounded(const float *from, int64_t count, Half, float *to) {         \
    for (int64_t i = 0; i < count; ++i)                                        \
      to[i] += widen(narrow<Half>(from[i]));                                   \
  }
FSDPC_HALF_LOOPS(BFloat16)
FSDPC_HALF_LOOPS(Float16)
#undef FSDPC_HALF_LOOPS

FSDPC_EACH_PROCESSOR
void addAll(const float *from, int64_t count, float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += from[i];
}

// Writes `source`, rounded to `Wire`, to `to`, or adds it.
template <typename Wire>
void takeFloats(const float *source, int64_t count, float *to, bool add) {
  if constexpr (!std::is_same_v<Wire, float>)
    add ? addRounded(source, count, Wire(), to)
        : roundAll(source, count, Wire(), to);
  else if (add)
    addAll(source, count, to);
  else
    memcpy(to, source, count * sizeof(float));
}

// Writes `source`, rounded to the wire type, to `to`, or adds it. A source of
// the wire type itself, or of a narrower one, needs no rounding.
void take(const void *source, WireType type, WireType wire, int64_t count,
          float *to, bool add) {
  withType(type, [&](auto from) {
    using From = decltype(from);
    auto *values = static_cast<const From *>(source);
    if constexpr (std::is_same_v<From, float>) {
      withType(wire, [&](auto rounded) {
        takeFloats<decltype(rounded)>(values, count, to, add);
      });
    } else if (wire == type || wire == WireType::f32) {
      add ? addWidened(values, count, to) : widenAll(values, count, to);
    } else {
      // From one 16-bit type to the other: piece by piece through f32.
      constexpr int64_t piece = 256;
      float wide[piece];
      for (int64_t i = 0; i < count; i += piece) {
        int64_t length = std::min(piece, count - i);
        widenAll(values + i, length, wide);
        take(wide, WireType::f32, wire, length, to + i, add);
      }
    }
  });
}

} // namespace

void castToWire(const void *source, WireType type, WireType wire, int64_t count,
                void *destination) {
  if (type == wire) {
    memcpy(destination, source, count * elementBytes(wire));
    return;
  }
  withType(type == WireType::f32 ? wire : type, [&](auto other) {
    using Half = decltype(other);
    if constexpr (!std::is_same_v<Half, float>) {
      if (type == WireType::f32)
        narrowAll(static_cast<const float *>(source), count,
                  static_cast<Half *>(destination));
      else
        widenAll(static_cast<const Half *>(source), count,
                 static_cast<float *>(destination));
    }
  });
}

// A sum that continues is built in the shard. Another is not, because the shard
// may lie inside one of the sources.
void sumRanks(const Addend *addends, int ranks, WireType wire, int64_t count,
              float *shard, bool add, const float *initial,
              size_t resultBytes) {
  constexpr int64_t block = 2048; // 8 KiB of sums stay in L1
  float sums[block];
  bool begun = add || initial;
  for (int64_t begin = 0; begin < count; begin += block) {
    int64_t length = std::min(block, count - begin);
    float *to = add ? shard + begin : sums;
    if (initial)
      memcpy(to, initial + begin, length * sizeof(float));
    for (int rank = 0; rank < ranks; ++rank)
      take(static_cast<const char *>(addends[rank].values) +
               begin * elementBytes(addends[rank].type),
           addends[rank].type, wire, length, to, rank != 0 || begun);
    if (!add)
      copyResult(sums, length * sizeof(float), shard + begin, resultBytes);
  }
}

} // namespace fsdpc::runtime

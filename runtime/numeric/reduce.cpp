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

// Two cache lines of sums. Vectors are explicit here: loops over their elements
// are left scalar by the compiler for some types and processors.
constexpr int64_t lineFloats = 32;
using Floats = float __attribute__((vector_size(lineFloats * sizeof(float))));
using Words = uint32_t __attribute__((vector_size(lineFloats * 4)));
using Halves = uint16_t __attribute__((vector_size(lineFloats * 2)));
#define FSDPC_INLINE __attribute__((always_inline)) inline

FSDPC_INLINE void widenLine(const float *from, Floats &to) {
  __builtin_memcpy(&to, from, sizeof to);
}
FSDPC_INLINE void widenLine(const BFloat16 *from, Floats &to) {
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  Words words = __builtin_convertvector(halves, Words) << 16;
  __builtin_memcpy(&to, &words, sizeof to);
}
FSDPC_INLINE void widenLine(const Float16 *from, Floats &to) {
  float wide[lineFloats];
  for (int64_t i = 0; i < lineFloats; ++i)
    wide[i] = widen(from[i]);
  __builtin_memcpy(&to, wide, sizeof to);
}
#undef FSDPC_INLINE

// Adds `ranks` sources of one type in one pass, so that the sums stay in
// registers. They begin with `initial`, or with the first source. `to` may be
// one of the sources, or `initial`.
#define FSDPC_SUM_LOOP(Value)                                                  \
  FSDPC_EACH_PROCESSOR                                                         \
  void sumLines(const Value *const *sources, int ranks, const float *initial,  \
                int64_t begin, int64_t end, float *to, bool streams) {         \
    for (int64_t i = begin; i < end; i += lineFloats) {                        \
      Floats sums, next;                                                       \
      if (initial)                                                             \
        widenLine(initial + i, sums);                                          \
      else                                                                     \
        widenLine(sources[0] + i, sums);                                       \
      for (int rank = initial ? 0 : 1; rank < ranks; ++rank) {                 \
        widenLine(sources[rank] + i, next);                                    \
        sums += next;                                                          \
      }                                                                        \
      if (streams)                                                             \
        streamLine(sums, to + i);                                              \
      else                                                                     \
        __builtin_memcpy(to + i, &sums, sizeof sums);                          \
    }                                                                          \
  }
FSDPC_SUM_LOOP(float)
FSDPC_SUM_LOOP(BFloat16)
FSDPC_SUM_LOOP(Float16)
#undef FSDPC_SUM_LOOP

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

namespace {

// More sources than this are more streams than a core fetches ahead at once.
constexpr int mostInOnePass = 8;

// Sums of addends that need no rounding and have one type.
template <typename Value>
void sumInOnePass(const Addend *addends, int ranks, int64_t count, float *shard,
                  const float *initial, bool streams) {
  const Value *sources[mostInOnePass];
  for (int rank = 0; rank < ranks; ++rank)
    sources[rank] = static_cast<const Value *>(addends[rank].values);
  auto sumOne = [&](int64_t i) {
    float sum = initial ? initial[i] : widen(sources[0][i]);
    for (int rank = initial ? 0 : 1; rank < ranks; ++rank)
      sum += widen(sources[rank][i]);
    shard[i] = sum;
  };
  // Elements before the first whole line of the result, and after the last one.
  int64_t before = -reinterpret_cast<uintptr_t>(shard) / sizeof(float) %
                   uint64_t(lineFloats);
  int64_t begin = std::min(count, before);
  int64_t end = begin + (count - begin) / lineFloats * lineFloats;
  for (int64_t i = 0; i < begin; ++i)
    sumOne(i);
  sumLines(sources, ranks, initial, begin, end, shard, streams);
  for (int64_t i = end; i < count; ++i)
    sumOne(i);
  if (streams)
    orderStores();
}

// Returns true if one pass can add these: all have one type, and rounding to
// the wire type would change none.
bool fitOnePass(const Addend *addends, int ranks, WireType wire) {
  WireType type = addends[0].type;
  auto hasType = [&](const Addend &addend) { return addend.type == type; };
  return ranks <= mostInOnePass &&
         std::all_of(addends, addends + ranks, hasType) &&
         (wire == type || wire == WireType::f32);
}

// Adds addend by addend to a block of sums, which is not in the shard: that may
// lie inside one of the sources.
void sumInBlocks(const Addend *addends, int ranks, WireType wire, int64_t count,
                 float *shard, const float *initial, bool streams) {
  constexpr int64_t block = 2048; // 8 KiB of sums stay in L1
  float sums[block];
  for (int64_t begin = 0; begin < count; begin += block) {
    int64_t length = std::min(block, count - begin);
    size_t bytes = size_t(length) * sizeof(float);
    if (initial)
      memcpy(sums, initial + begin, bytes);
    for (int rank = 0; rank < ranks; ++rank)
      take(static_cast<const char *>(addends[rank].values) +
               begin * elementBytes(addends[rank].type),
           addends[rank].type, wire, length, sums, rank != 0 || initial);
    if (streams)
      streamBytes(sums, bytes, shard + begin);
    else
      memcpy(shard + begin, sums, bytes);
  }
}

} // namespace

// A sum that continues from the shard has read its lines, so it writes them as
// usual.
void sumRanks(const Addend *addends, int ranks, WireType wire, int64_t count,
              float *shard, bool add, const float *initial,
              size_t resultBytes) {
  if (add && ranks == 1) // without a copy of the sums
    return take(addends[0].values, addends[0].type, wire, count, shard, true);
  const float *from = add ? shard : initial;
  bool streams = !add && resultBytes >= streamedBytes;
  if (!fitOnePass(addends, ranks, wire))
    return sumInBlocks(addends, ranks, wire, count, shard, from, streams);
  withType(addends[0].type, [&](auto value) {
    sumInOnePass<decltype(value)>(addends, ranks, count, shard, from, streams);
  });
}

} // namespace fsdpc::runtime

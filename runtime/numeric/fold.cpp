// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One loop for each type and reduction, by templates: a block of wide values is
// filled from rank 0, combined with the others and rounded once. Blocks stay in
// the L1 cache, and the loops over them vectorise.
#include "runtime/numeric/fold.h"
#include "runtime/numeric/bfloat16.h"
#include "runtime/numeric/float16.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

namespace {

// 4 to 8 KiB of wide values.
constexpr int64_t block = 1024;

// Combines values of a type: as `Wide`, which for integers is unsigned, since
// their sums and products wrap around.
template <typename T> struct Arithmetic {
  using Wide = float;
  static float wide(T value) { return widen(value); }
  static T result(float value) { return narrow<T>(value); }
  static float average(float sum, int ranks) { return sum / float(ranks); }
  static bool less(float a, float b) { return a < b; }
  static bool isNan(float a) { return a != a; }
};
// Signed where it matters: averages and comparisons.
template <typename T> struct IntegerArithmetic {
  using Wide = uint64_t;
  static uint64_t wide(T value) { return uint64_t(int64_t(value)); }
  static T result(uint64_t value) { return T(value); }
  static uint64_t average(uint64_t sum, int ranks) {
    return uint64_t(int64_t(sum) / ranks);
  }
  static bool less(uint64_t a, uint64_t b) { return int64_t(a) < int64_t(b); }
  static bool isNan(uint64_t) { return false; }
};
template <> struct Arithmetic<int32_t> : IntegerArithmetic<int32_t> {};
template <> struct Arithmetic<int64_t> : IntegerArithmetic<int64_t> {};

// A NaN on either side is the result: the first one is kept, and a later one
// replaces a number.
template <typename A, Reduction reduction, typename Wide>
Wide combine(Wide so, Wide value) {
  if constexpr (reduction == Reduction::prod)
    return so * value;
  else if constexpr (reduction == Reduction::min)
    return A::less(value, so) || A::isNan(value) ? value : so;
  else if constexpr (reduction == Reduction::max)
    return A::less(so, value) || A::isNan(value) ? value : so;
  else
    return so + value;
}

template <typename T, Reduction reduction>
void fold(const void *const *values, int ranks, int64_t count, void *result) {
  using A = Arithmetic<T>;
  typename A::Wide wide[block];
  for (int64_t begin = 0; begin < count; begin += block) {
    int64_t length = std::min(block, count - begin);
    auto source = [&](int rank) {
      return static_cast<const T *>(values[rank]) + begin;
    };
    const T *first = source(0);
    for (int64_t i = 0; i < length; ++i)
      wide[i] = A::wide(first[i]);
    for (int rank = 1; rank < ranks; ++rank) {
      const T *next = source(rank);
      for (int64_t i = 0; i < length; ++i)
        wide[i] = combine<A, reduction>(wide[i], A::wide(next[i]));
    }
    T *to = static_cast<T *>(result) + begin;
    for (int64_t i = 0; i < length; ++i)
      to[i] = A::result(reduction == Reduction::avg ? A::average(wide[i], ranks)
                                                    : wide[i]);
  }
}

template <typename T>
void foldType(const void *const *values, int ranks, int64_t count,
              Reduction reduction, void *result) {
  switch (reduction) {
  case Reduction::sum:
    return fold<T, Reduction::sum>(values, ranks, count, result);
  case Reduction::prod:
    return fold<T, Reduction::prod>(values, ranks, count, result);
  case Reduction::min:
    return fold<T, Reduction::min>(values, ranks, count, result);
  case Reduction::max:
    return fold<T, Reduction::max>(values, ranks, count, result);
  case Reduction::avg:
    return fold<T, Reduction::avg>(values, ranks, count, result);
  }
}

} // namespace

void foldRanks(const void *const *values, int ranks, int64_t count,
               ValueType type, Reduction reduction, void *result) {
  switch (type) {
  case ValueType::f32:
    return foldType<float>(values, ranks, count, reduction, result);
  case ValueType::bf16:
    return foldType<BFloat16>(values, ranks, count, reduction, result);
  case ValueType::f16:
    return foldType<Float16>(values, ranks, count, reduction, result);
  case ValueType::i32:
    return foldType<int32_t>(values, ranks, count, reduction, result);
  case ValueType::i64:
    return foldType<int64_t>(values, ranks, count, reduction, result);
  }
}

} // namespace fsdpc::runtime

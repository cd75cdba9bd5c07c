// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The conformance suite of the collectives on typed values. Each rank runs it
// on its communicator and compares with plain loops over the values of all
// ranks, which every rank can compute. Returns the first differences as text.
#pragma once

#include "runtime/comm/collectives.h"
#include "runtime/numeric/bfloat16.h"
#include "runtime/numeric/float16.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace fsdpc::testing {

using namespace runtime;

/// Deterministic bits, of which small types take the upper ones.
inline uint64_t bitsOf(int rank, int64_t element) {
  uint64_t x = (uint64_t(rank) + 1) * 0x9e3779b97f4a7c15u +
               uint64_t(element) * 0xbf58476d1ce4e5b9u;
  x ^= x >> 31;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 29);
}

/// Floats around 1, so that products of eight ranks stay finite in f16 too;
/// integers of all sizes, so that sums and products wrap around.
template <typename T> T typedValue(int rank, int64_t element) {
  uint64_t bits = bitsOf(rank, element);
  if constexpr (std::is_integral_v<T>)
    return T(int64_t(bits) >> (element % 7 * 8));
  else
    return narrow<T>((bits & 1 ? -1.0f : 1.0f) *
                     (0.5f + float(bits >> 40) / float(1 << 24)));
}

/// One element of all ranks, combined as collectives.h says.
template <typename T>
T expectedOf(const std::vector<T> &values, Reduction reduction) {
  using Wide = std::conditional_t<std::is_integral_v<T>, __int128, float>;
  auto widened = [](T value) {
    if constexpr (std::is_integral_v<T>)
      return Wide(value);
    else
      return widen(value);
  };
  Wide result = widened(values[0]);
  for (size_t rank = 1; rank < values.size(); ++rank) {
    Wide next = widened(values[rank]);
    switch (reduction) {
    case Reduction::sum:
    case Reduction::avg:
      result += next;
      break;
    case Reduction::prod:
      result *= next;
      // Wrapped around at each step, or eight factors overflow 128 bits.
      if constexpr (std::is_integral_v<T>)
        result = Wide(T(result));
      break;
    case Reduction::min:
      result = next < result ? next : result;
      break;
    case Reduction::max:
      result = next > result ? next : result;
      break;
    }
  }
  if constexpr (std::is_integral_v<T>)
    return T(reduction == Reduction::avg
                 ? int64_t(result) / int64_t(values.size())
                 : int64_t(result));
  else
    return narrow<T>(reduction == Reduction::avg ? result / float(values.size())
                                                 : result);
}

class TypedSuite {
public:
  explicit TypedSuite(Communicator &ranks)
      : ranks(ranks), self(ranks.rank()), size(ranks.size()) {}

  std::string run() {
    for (int64_t count : {0, 1, 31, 1000}) {
      moves(size_t(count));
      runType<float>(ValueType::f32, "f32", count);
      runType<BFloat16>(ValueType::bf16, "bf16", count);
      runType<Float16>(ValueType::f16, "f16", count);
      runType<int32_t>(ValueType::i32, "i32", count);
      runType<int64_t>(ValueType::i64, "i64", count);
    }
    // Several pieces of scratch.
    moves(300001);
    reductions<float>(ValueType::f32, "f32", 70001, Reduction::sum, 0);
    reductions<int64_t>(ValueType::i64, "i64", 40001, Reduction::max, 0);
    notANumber();
    return differences;
  }

private:
  void expect(bool same, const std::string &what, size_t count) {
    if (!same && differences.size() < 1000)
      differences += "rank " + std::to_string(self) + " of " +
                     std::to_string(size) + ": " + what + " of " +
                     std::to_string(count) + "\n";
  }

  /// Piece `piece` of what `rank` has.
  static std::string text(int rank, int piece, size_t bytes) {
    std::string made(bytes, 0);
    for (size_t i = 0; i < bytes; ++i)
      made[i] = char(i * 7 + size_t(rank) * 31 + size_t(piece) * 101 + i / 251);
    return made;
  }

  /// The collectives that only move bytes, with every rank as the root.
  void moves(size_t bytes) {
    std::string all, toMe;
    for (int rank = 0; rank < size; ++rank) {
      all += text(rank, 0, bytes);
      toMe += text(rank, self, bytes);
    }
    for (int root = 0; root < size; root += bytes > 1000 ? size : 1) {
      std::string data =
          self == root ? text(root, 5, bytes) : std::string(bytes, '?');
      broadcast(ranks, data.data(), bytes, root);
      expect(data == text(root, 5, bytes), "broadcast", bytes);
      std::string own = text(self, 0, bytes), whole(all.size(), '?');
      gather(ranks, own.data(), whole.data(), bytes, root);
      if (self == root)
        expect(whole == all, "gather", bytes);
      std::string piece(bytes, '?');
      scatter(ranks, whole.data(), piece.data(), bytes, root);
      expect(piece == own, "scatter", bytes);
    }
    std::string sent, got(bytes * size_t(size), '?');
    for (int rank = 0; rank < size; ++rank)
      sent += text(self, rank, bytes);
    allToAll(ranks, sent.data(), got.data(), bytes);
    expect(got == toMe, "all-to-all", bytes);
    pass(bytes);
  }

  /// A message from rank to rank, from the first to the last.
  void pass(size_t bytes) {
    std::string data = text(0, 3, bytes);
    if (self > 0) {
      data.assign(bytes, '?');
      receive(ranks, data.data(), bytes, self - 1);
    }
    expect(data == text(0, 3, bytes), "send/receive", bytes);
    if (self + 1 < size)
      send(ranks, data.data(), bytes, self + 1);
  }

  template <typename T>
  void runType(ValueType type, const char *name, int64_t count) {
    int root = int(count) % size;
    for (Reduction reduction : {Reduction::sum, Reduction::prod, Reduction::min,
                                Reduction::max, Reduction::avg})
      reductions<T>(type, name, count, reduction, root);
  }

  /// Elements [begin, begin + count) of all ranks, combined by plain loops.
  template <typename T>
  std::vector<T> expectedFrom(int64_t begin, int64_t count,
                              Reduction reduction) const {
    std::vector<T> expected, column(static_cast<size_t>(size));
    for (int64_t i = begin; i < begin + count; ++i) {
      for (int rank = 0; rank < size; ++rank)
        column[size_t(rank)] = typedValue<T>(rank, i);
      expected.push_back(expectedOf(column, reduction));
    }
    return expected;
  }

  template <typename T>
  void reductions(ValueType type, const char *name, int64_t count,
                  Reduction reduction, int root) {
    std::vector<T> own;
    for (int64_t i = 0; i < count * size; ++i)
      own.push_back(typedValue<T>(self, i));
    std::vector<T> head = expectedFrom<T>(0, count, reduction);
    std::vector<T> mine = expectedFrom<T>(self * count, count, reduction);
    // Not vector's ==: NaN does not occur here, and zeros have a sign.
    auto are = [&](const T *values, const std::vector<T> &expected) {
      return count == 0 ||
             memcmp(values, expected.data(), size_t(count) * sizeof(T)) == 0;
    };
    std::string what =
        std::string(name) + " reduction " + std::to_string(int(reduction));
    std::vector<T> result(size_t(count) + 1);
    allReduce(ranks, own.data(), result.data(), count, type, reduction);
    expect(are(result.data(), head), what + " all-reduce", size_t(count));
    reduceScatter(ranks, own.data(), result.data(), count, type, reduction);
    expect(are(result.data(), mine), what + " reduce-scatter", size_t(count));
    bool isRoot = self == root;
    reduce(ranks, own.data(), isRoot ? result.data() : nullptr, count, type,
           reduction, root);
    if (isRoot)
      expect(are(result.data(), head), what + " reduce", size_t(count));
    // In place, which changes `own`.
    T *part = own.data() + self * count;
    std::vector<T> before = own;
    reduceScatter(ranks, own.data(), part, count, type, reduction);
    expect(are(part, mine), what + " reduce-scatter in place", size_t(count));
    own = before;
    allReduce(ranks, own.data(), own.data(), count, type, reduction);
    expect(are(own.data(), head), what + " all-reduce in place", size_t(count));
  }

  /// The NaN of any one rank is the least and the largest value.
  void notANumber() {
    for (int rank = 0; rank < size; ++rank)
      for (Reduction reduction : {Reduction::min, Reduction::max}) {
        float value = self == rank ? NAN : 1.0f, result = 0;
        allReduce(ranks, &value, &result, 1, ValueType::f32, reduction);
        expect(std::isnan(result), "a NaN", 1);
      }
  }

  Communicator &ranks;
  const int self, size;
  std::string differences;
};

/// Runs the suite on a channel and on the groups of every second rank.
inline std::string runTypedCases(Job &job) {
  Communicator &channel = *job.channel[controlChannel];
  std::string differences = TypedSuite(channel).run();
  if (job.size == 4 || job.size == 5)
    differences += TypedSuite(*channel.split(job.rank % 2)).run();
  return differences;
}

} // namespace fsdpc::testing

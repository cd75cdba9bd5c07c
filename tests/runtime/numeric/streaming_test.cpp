// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies past the caches, against memcpy: whole cache lines take another path
// than the bytes before and after them.
#include "runtime/numeric/streaming.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

using namespace fsdpc::runtime;

namespace {

std::vector<char> bytesOf(size_t count) {
  std::vector<char> bytes(count);
  for (size_t i = 0; i < count; ++i)
    bytes[i] = char(i * 31 % 127 + 1);
  return bytes;
}

// Any alignment of both sides, and lengths around one line. The bytes around
// the result stay zero.
TEST(StreamBytes, WritesExactlyTheResult) {
  constexpr size_t room = 512;
  std::vector<char> from = bytesOf(room);
  for (size_t begin = 64; begin < 128; ++begin)
    for (size_t length : {0, 1, 63, 64, 65, 127, 128, 200})
      for (size_t source : {0, 1, 32}) {
        std::vector<char> to(room, 0), expected(room, 0);
        std::copy_n(&from[source], length, &expected[begin]);
        streamBytes(&from[source], length, &to[begin]);
        ASSERT_EQ(to, expected) << begin << " " << length << " " << source;
      }
}

// The size of the whole result decides how a part of it is copied, and never
// what is copied.
TEST(CopyResult, CopiesPartsOfLargeAndSmallResults) {
  std::vector<char> from = bytesOf(1000);
  for (size_t resultBytes : {size_t(1000), streamedBytes}) {
    std::vector<char> to(1000, 0);
    copyResult(from.data(), 1000, to.data(), resultBytes);
    EXPECT_EQ(to, from);
  }
  std::vector<char> same = from;
  copyResult(same.data(), 1000, same.data(), streamedBytes);
  EXPECT_EQ(same, from);
}

} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whole cache lines are written past the caches, and the bytes before and after
// them as usual. A line that is written in part would be read first.
#include "runtime/numeric/streaming.h"
#include "runtime/numeric/each_processor.h"

#include <algorithm>
#include <cstdint>

namespace fsdpc::runtime {

namespace {

constexpr size_t lineBytes = 64;
using Line = uint8_t __attribute__((vector_size(lineBytes)));

FSDPC_EACH_PROCESSOR
void streamLines(const char *from, size_t lines, char *to) {
  for (size_t i = 0; i < lines; ++i) {
    Line line;
    __builtin_memcpy(&line, from + i * lineBytes, lineBytes);
    streamLine(line, to + i * lineBytes);
  }
}

} // namespace

void streamBytes(const void *source, size_t bytes, void *destination) {
  auto *from = static_cast<const char *>(source);
  auto *to = static_cast<char *>(destination);
  size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % lineBytes);
  size_t lines = (bytes - head) / lineBytes;
  size_t tail = head + lines * lineBytes;
  std::memcpy(to, from, head);
  streamLines(from + head, lines, to + head);
  std::memcpy(to + tail, from + tail, bytes - tail);
  orderStores();
}

} // namespace fsdpc::runtime

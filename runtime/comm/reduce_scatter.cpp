// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/reduce_scatter.h"

#include <algorithm>

namespace fsdpc::runtime {

WireType handedOver(const ReduceScatter &part) {
  return part.type == WireType::f32 ? part.wire : part.type;
}

// Shards of the last ranks may begin beyond the elements.
int64_t realElements(const ReduceScatter &part, int64_t begin, int64_t count) {
  return std::clamp<int64_t>(part.elements - begin, 0, count);
}

void sumPadding(const ReduceScatter &part, int64_t begin, int64_t end) {
  if (part.add)
    return;
  if (part.initial)
    std::copy(part.initial + begin, part.initial + end, part.shard + begin);
  else
    std::fill(part.shard + begin, part.shard + end, 0.0f);
}

// May point past the end, where realElements() is 0.
const void *gradientAt(const ReduceScatter &part, int64_t begin) {
  return static_cast<const char *>(part.gradient) +
         begin * elementBytes(part.type);
}

} // namespace fsdpc::runtime

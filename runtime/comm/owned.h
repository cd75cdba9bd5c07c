// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values that one rank owns whole, and how the values of several owners go
// through staging memory together. The values that a rank owns form one run of
// bytes. Each piece of a collective takes the same range of every owner's run.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/support/round_up.h"

#include <algorithm>

namespace fsdpc::runtime {

/// Values of one list may differ in type, so each begins at a cache line.
inline size_t placeOf(size_t bytes) { return roundUp64(bytes); }

inline WireType handedOver(const OwnedGradient &part, WireType wire) {
  return part.type == WireType::f32 ? wire : part.type;
}

inline size_t bytesOf(const OwnedGradient &part, WireType wire) {
  return size_t(part.elements) * elementBytes(handedOver(part, wire));
}

inline const void *elementOf(const OwnedGradient &part, size_t element) {
  return static_cast<const char *>(part.gradient) +
         element * elementBytes(part.type);
}

/// Calls body(item, from, count, at) for the parts of items in the range
/// [begin, begin + length) of an owner's run: `count` bytes from byte `from` of
/// the item on, which lie `at` bytes behind the beginning of the range.
/// `sizeOf` gives an item's bytes.
template <typename Item, typename Size, typename Body>
void forEachOwned(std::span<const Item> items, int owner, size_t begin,
                  size_t length, const Size &sizeOf, const Body &body) {
  size_t first = 0;
  for (const Item &item : items) {
    if (item.owner != owner)
      continue;
    size_t bytes = sizeOf(item);
    size_t from = std::max(begin, first);
    size_t to = std::min(begin + length, first + bytes);
    if (from < to)
      body(item, from - first, to - from, from - begin);
    first += placeOf(bytes);
  }
}

/// Writes the bytes of each owner's run. Returns those of the longest.
template <typename Item, typename Size>
size_t measureRuns(std::span<const Item> items, const Size &sizeOf,
                   std::vector<size_t> &runs) {
  std::fill(runs.begin(), runs.end(), 0);
  for (const Item &item : items)
    runs[size_t(item.owner)] += placeOf(sizeOf(item));
  return *std::max_element(runs.begin(), runs.end());
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives to and from owners: how communicators that stage their data cut
// owned values into pieces. All ranks work on each piece, as long as several
// ranks own something. A small item shares its piece with others.
#include "runtime/comm/owned.h"
#include "runtime/comm/staged.h"
#include "runtime/numeric/streaming.h"

#include <cstring>

namespace fsdpc::runtime {

// Per piece as in reduceScatter, but a segment is a range of what its owner
// owns, which may end before those of others.
void StagedCommunicator::doReduceToOwners(
    std::span<const OwnedGradient> gradients, WireType wire, bool add) {
  auto sizeOf = [&](const OwnedGradient &part) { return bytesOf(part, wire); };
  size_t longest = measureRuns(gradients, sizeOf, runs);
  size_t step = staging.half / size_t(ranks) / 64 * 64;
  for (size_t begin = 0; begin < longest; begin += step) {
    size_t segment = std::min(step, longest - begin);
    for (size_t rank = 0; rank < runs.size(); ++rank)
      lengths[rank] =
          std::min(segment, runs[rank] - std::min(runs[rank], begin));
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != self)
        forEachOwned(gradients, peer, begin, segment, sizeOf,
                     [&](const OwnedGradient &part, size_t from, size_t count,
                         size_t at) {
                       WireType sent = handedOver(part, wire);
                       size_t first = from / elementBytes(sent);
                       castToWire(elementOf(part, first), part.type, sent,
                                  int64_t(count / elementBytes(sent)),
                                  outgoing(peer, segment) + at);
                     });
    trade(segment, lengths, sources.data());
    forEachOwned(
        gradients, self, begin, segment, sizeOf,
        [&](const OwnedGradient &part, size_t from, size_t count, size_t at) {
          WireType sent = handedOver(part, wire);
          size_t first = from / elementBytes(sent);
          for (int peer = 0; peer < ranks; ++peer)
            addends[peer] = {static_cast<const char *>(sources[peer]) + at,
                             sent};
          addends[self] = {elementOf(part, first), part.type};
          sumRanks(addends.data(), ranks, wire,
                   int64_t(count / elementBytes(sent)), part.sum + first, add);
        });
  }
}

// Each owner writes the next piece of what it owns to its window, and all
// others copy it to its places.
void WindowCommunicator::doShareOwned(std::span<const OwnedValues> values) {
  auto sizeOf = [](const OwnedValues &part) { return part.bytes; };
  size_t longest = measureRuns(values, sizeOf, runs);
  size_t step = staging.gather / 64 * 64;
  for (size_t begin = 0; begin < longest; begin += step) {
    auto eachPart = [&](int owner, const auto &body) {
      forEachOwned(values, owner, begin, step, sizeOf, body);
    };
    eachPart(self, [&](const OwnedValues &part, size_t from, size_t count,
                       size_t at) {
      memcpy(stage(self) + at, static_cast<const char *>(part.values) + from,
             count);
    });
    barrier();
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != self)
        eachPart(peer, [&](const OwnedValues &part, size_t from, size_t count,
                           size_t at) {
          copyResult(stage(peer) + at, count,
                     static_cast<char *>(part.values) + from, part.bytes);
        });
    half ^= 1;
  }
}

// A message holds values of one item, so it needs no staging.
std::span<char>
ExchangeCommunicator::nextOwned(std::span<const OwnedValues> values,
                                int owner) {
  Cursor &cursor = cursors[size_t(owner)];
  while (cursor.index < values.size() &&
         (values[cursor.index].owner != owner ||
          values[cursor.index].bytes == cursor.done))
    cursor = {cursor.index + 1, 0};
  if (cursor.index == values.size())
    return {};
  const OwnedValues &part = values[cursor.index];
  size_t bytes = std::min(staging.gather, part.bytes - cursor.done);
  cursor.done += bytes;
  return {static_cast<char *>(part.values) + cursor.done - bytes, bytes};
}

// In each round every owner sends its next message. A rank is done when no
// other has anything left for it.
void ExchangeCommunicator::doShareOwned(std::span<const OwnedValues> values) {
  cursors.assign(size_t(ranks), {});
  do {
    sends.clear();
    receives.clear();
    std::span<char> own = nextOwned(values, self);
    for (int i = 1; i < ranks; ++i) {
      int next = (self + i) % ranks, previous = (self + ranks - i) % ranks;
      if (!own.empty())
        sends.push_back({next, own.data(), own.size()});
      if (std::span<char> part = nextOwned(values, previous); !part.empty())
        receives.push_back({previous, part.data(), part.size()});
    }
    doTransfer(sends, receives);
  } while (!sends.empty() || !receives.empty());
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sizes of staging memory. Windows are mapped lazily: a channel that only
// gathers never touches the pages that reducing needs, so they cost nothing.
// The memory plan counts what is touched, not what is mapped.
#include "runtime/abi/staging.h"
#include "runtime/abi/connections.h"
#include "runtime/abi/kept_bytes.h"
#include "runtime/support/round_up.h"

#include <algorithm>

namespace fsdpc {
namespace {

constexpr size_t mebibyte = size_t(1) << 20;
constexpr size_t page = 4096;

} // namespace

Staging Staging::of(Channel channel, int ranks) {
  // The sizes bound three things. A rank touches its own window and of each
  // peer's its segment (reducing) or the head (gathering): at most 8 MiB in
  // all. The windows of a node together stay below 32 MiB, because /dev/shm is
  // often small. And what is copied at a time stays in a core's cache until the
  // peer reads it, because memcpy writes larger pieces past the caches.
  auto pages = [](size_t bytes) {
    return std::max<size_t>(bytes / page * page, page);
  };
  Staging staging;
  size_t count = ranks;
  bool gathers = channel == gatherChannel;
  staging.gather = gathers ? pages(std::min(mebibyte / 2, 4 * mebibyte / count))
                           : pages(64 * 1024 / count);
  staging.half =
      channel == reduceChannel
          ? std::max(pages(std::min(mebibyte, 16 * mebibyte / count)),
                     count * 64)
          : staging.gather;
  return staging;
}

size_t Staging::windowBytes() const {
  return header + roundUp(2 * std::max(half, gather), page);
}

int64_t Staging::touchedBytes(int ranks) const {
  // A segment may begin in the middle of a page, hence one page more.
  int64_t segment = roundUp(half / ranks, page) + page;
  int64_t peer = 2 * std::max<int64_t>(gather, half > gather ? segment : 0);
  int64_t own = 2 * std::max(half, gather);
  return own + (ranks - 1) * std::min(own, peer) + header;
}

// Returns true if the ranks of a node hand on what they gather from others.
static bool handsOn(int ranks, int ranksPerNode) {
  return ranksPerNode > 1 && ranksPerNode < ranks && ranks % ranksPerNode == 0;
}

// What the ranks of a node touch of each other's windows to hand that on.
static int64_t handingOnBytes(int ranks, int ranksPerNode) {
  if (!handsOn(ranks, ranksPerNode))
    return 0;
  return Staging::of(gatherChannel, ranksPerNode).touchedBytes(ranksPerNode) +
         int64_t(Staging::header);
}

// What sums over nodes take: three pieces, and the windows of the node's ranks.
static int64_t nodeReductionBytes(int ranks, int ranksPerNode, bool windows) {
  if (!handsOn(ranks, ranksPerNode))
    return 0;
  int64_t bytes = 3 * groupPieceBytes;
  return windows ? bytes + int64_t(Staging::header) +
                       Staging::of(reduceChannel, ranksPerNode)
                           .touchedBytes(ranksPerNode)
                 : bytes;
}

// What the links to all peers keep: of each of the gather and the reduce
// channel at most a message, since a peer has the one before once it has sent
// its own.
static int64_t keptBytes(int ranks, int ranksPerNode) {
  int64_t peers = ranks - 1;
  int gatherRanks = handsOn(ranks, ranksPerNode) ? ranks / ranksPerNode : ranks;
  return (gatherRanks - 1) *
             int64_t(Staging::of(gatherChannel, gatherRanks).gather) +
         peers * int64_t(Staging::of(reduceChannel, ranks).half) / ranks +
         peers * channels * int64_t(2 * leastKeptBytes);
}

// The same of the ranks of one node, which exchange data through windows.
static int64_t windowedBytes(int ranks) {
  return Staging::of(gatherChannel, ranks).touchedBytes(ranks) +
         Staging::of(reduceChannel, ranks).touchedBytes(ranks) +
         channels * roundPeers(ranks) * int64_t(2 * leastKeptBytes);
}

// The bytes in which a TCP channel collects small pieces, round by round.
static int64_t roundsBytes(int ranks) {
  return ranks > mostDirect ? int64_t(mostInRounds) * ranks : 0;
}

int64_t communicationBytes(int ranks, int ranksPerNode,
                           const std::string &transport) {
  if (ranks <= 1)
    return 0;
  bool severalNodes = ranksPerNode > 0 && ranksPerNode < ranks;
  // Over messages only the staging of the reduce channel is ever touched.
  int64_t half = int64_t(Staging::of(reduceChannel, ranks).half);
  if (transport == "tcp") {
    int64_t messages = 2 * half + handingOnBytes(ranks, ranksPerNode) +
                       nodeReductionBytes(ranks, ranksPerNode, true) +
                       keptBytes(ranks, ranksPerNode) +
                       channels * roundsBytes(ranks);
    // The ranks of one node use messages only where they cannot share windows.
    // With them the control channel alone collects more than a few bytes.
    return severalNodes
               ? messages
               : std::max(messages, windowedBytes(ranks) + roundsBytes(ranks));
  }
  // Threads read each other's buffers within a node.
  if (severalNodes)
    return 2 * half +
           nodeReductionBytes(ranks, ranksPerNode, transport != "local") +
           (transport == "local" ? 0 : handingOnBytes(ranks, ranksPerNode));
  if (transport == "local")
    return 0;
  int64_t bytes = 0;
  for (int channel = 0; channel < channels; ++channel)
    bytes += Staging::of(Channel(channel), ranks).touchedBytes(ranks);
  return bytes;
}

int64_t groupCommunicationBytes(int ranks, int groupRanks, int ranksPerNode,
                                const std::string &transport, bool reduces) {
  if (ranks <= 1)
    return 0;
  // Sums from the group before, of this group, and complete ones.
  int64_t bytes = reduces && groupRanks < ranks ? 3 * groupPieceBytes : 0;
  bool onOneNode =
      groupRanks > 1 && (ranksPerNode <= 0 || groupRanks <= ranksPerNode);
  if (onOneNode && transport == "local")
    return bytes;
  if (!onOneNode)
    return bytes +
           (reduces ? 2 * int64_t(Staging::of(reduceChannel, groupRanks).half)
                    : 0) +
           (transport == "tcp" ? (reduces ? 2 : 1) * roundsBytes(groupRanks)
                               : 0);
  // Between groups nothing but the header is touched.
  auto touched = [&](Channel channel) {
    return Staging::of(channel, groupRanks).touchedBytes(groupRanks) +
           int64_t(Staging::header);
  };
  return bytes + touched(gatherChannel) +
         (reduces ? touched(reduceChannel) : 0);
}

} // namespace fsdpc

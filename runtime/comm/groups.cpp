// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reduction over groups is a pipeline of pieces: at tick t group g works on
// piece t - g, so all groups but those at the ends are busy at once. At the end
// of a tick the groups hand pieces to each other in one transfer(), in which no
// rank waits for a message that depends on its own.
#include "runtime/comm/groups.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

namespace {

// A piece stays in a core's cache, and takes longer to move than a message's
// latency.
constexpr int64_t pieceElements = groupPieceBytes / int64_t(sizeof(float));

// The last piece may be shorter.
int64_t piecesOf(const ReduceScatter &part) {
  return (part.shardElements + pieceElements - 1) / pieceElements;
}

int64_t lengthOf(const ReduceScatter &part, int64_t piece) {
  return std::min(pieceElements, part.shardElements - piece * pieceElements);
}

} // namespace

Group groupOf(Communicator &whole, int color) {
  std::vector<int> colors(size_t(whole.size()));
  whole.allGather(&color, colors.data(), sizeof color);
  Group group;
  for (int rank = 0; rank < whole.size(); ++rank) {
    if (rank == whole.rank())
      group.rank = int(group.members.size());
    if (colors[size_t(rank)] == color)
      group.members.push_back(rank);
  }
  return group;
}

ShardGroups::ShardGroups(std::unique_ptr<Communicator> inGroup,
                         std::unique_ptr<Communicator> betweenGroups)
    : group(std::move(inGroup)), peers(std::move(betweenGroups)),
      own(peers->rank()), last(peers->size() - 1) {}

Result<std::unique_ptr<ShardGroups>> ShardGroups::make(Communicator &whole,
                                                       int groupRanks) {
  if (groupRanks < 1 || whole.size() % groupRanks)
    return inputError(concat("a shard group of ", groupRanks,
                             " ranks does not divide the job's ", whole.size(),
                             " ranks"));
  // Both splits are collective, in the same order on every rank.
  auto group = whole.split(whole.rank() / groupRanks);
  auto peers = whole.split(whole.rank() % groupRanks);
  return std::unique_ptr<ShardGroups>(
      new ShardGroups(std::move(group), std::move(peers)));
}

// Sums this group's values of one piece, on top of what the group before sent.
// The first group continues what the shard holds, if that is asked for.
void ShardGroups::reducePiece(const ReduceScatter &part, int64_t piece) {
  int64_t first = piece * pieceElements;
  const float *before = own        ? incoming
                        : part.add ? part.shard + first
                                   : nullptr;
  size_t width = elementBytes(part.type);
  group->reduceScatter(
      {static_cast<const char *>(part.gradient) + size_t(first) * width,
       part.type, part.wire, part.elements - first, lengthOf(part, piece),
       outgoing, false, before, partOf(part, 1)});
}

// Hands this group's sums to the next group, and those of the last group to
// all; takes what this rank needs for its next piece, and complete sums.
void ShardGroups::tradePieces(const ReduceScatter &part, int64_t tick) {
  auto isPiece = [&](int64_t piece) {
    return piece >= 0 && piece < piecesOf(part);
  };
  sends.clear();
  receives.clear();
  // The piece that this group has just summed, and the one that is complete
  // now.
  int64_t piece = tick - own, finished = tick - last;
  if (isPiece(piece))
    for (int to = 0; to <= last; ++to)
      if (own == last ? to != own : to == own + 1)
        sends.push_back(
            {to, outgoing, size_t(lengthOf(part, piece)) * sizeof(float)});
  if (own > 0 && isPiece(piece + 1))
    receives.push_back(
        {own - 1, incoming, size_t(lengthOf(part, piece + 1)) * sizeof(float)});
  if (own < last && isPiece(finished))
    receives.push_back(
        {last, complete, size_t(lengthOf(part, finished)) * sizeof(float)});
  peers->transfer(sends, receives);
}

void ShardGroups::reduceScatter(const ReduceScatter &part) {
  if (last == 0)
    return group->reduceScatter(part);
  if (scratch.empty()) {
    scratch.resize(3 * size_t(pieceElements));
    incoming = scratch.data();
    outgoing = incoming + pieceElements;
    complete = outgoing + pieceElements;
  }
  // Until the shard's part is complete nothing of it is written: it may lie
  // inside the gradient, and with `add` the first group continues it.
  int64_t pieces = piecesOf(part);
  // The last piece reaches the last group `last` ticks after the first group
  // has summed it.
  for (int64_t tick = 0; tick < pieces + last; ++tick) {
    if (tick >= own && tick - own < pieces)
      reducePiece(part, tick - own);
    tradePieces(part, tick);
    int64_t finished = tick - last;
    if (finished < 0)
      continue;
    const float *sums = own == last ? outgoing : complete;
    memcpy(part.shard + finished * pieceElements, sums,
           size_t(lengthOf(part, finished)) * sizeof(float));
  }
}

} // namespace fsdpc::runtime

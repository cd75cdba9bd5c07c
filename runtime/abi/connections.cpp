// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/abi/connections.h"
#include "runtime/abi/staging.h"

#include <algorithm>
#include <bit>

namespace fsdpc {

int64_t roundPeers(int ranks) {
  if (ranks <= mostDirect)
    return ranks - 1;
  // A round for each power of two below the number of ranks, each with a peer
  // before this rank and one after it.
  return std::min<int64_t>(ranks - 1, 2 * std::bit_width(unsigned(ranks - 1)));
}

// The watch joins rank 0 with every other rank.
static int64_t watched(int rank, int ranks) {
  return rank == 0 ? ranks - 1 : 1;
}

// On the two channels of data the ranks of a node share memory, which they
// first agree on, and exchange data with those of their place in each other
// node.
int64_t usualConnections(int rank, int ranks, int ranksPerNode) {
  int perNode = ranksPerNode > 0 ? std::min(ranksPerNode, ranks) : ranks;
  int64_t agreeing = roundPeers(ranks), exchanging = ranks - 1;
  if (perNode == ranks)
    exchanging = agreeing;
  else if (perNode > 1 && ranks % perNode == 0)
    exchanging = std::min<int64_t>(ranks - 1, agreeing + roundPeers(perNode) +
                                                  ranks / perNode - 1);
  return agreeing + (channels - 1) * exchanging + watched(rank, ranks);
}

int64_t mostConnections(int rank, int ranks) {
  return int64_t(channels) * (ranks - 1) + watched(rank, ranks);
}

} // namespace fsdpc

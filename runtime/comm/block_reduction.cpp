// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/block_reduction.h"
#include "runtime/comm/reduce_scatter.h"

#include <algorithm>

namespace fsdpc::runtime {

// Converts the gradient's elements [begin, begin + count blocks). A block has
// elements of one member at most, since members begin with a block.
static void membersToBlocks(const ReduceScatter &part,
                            std::span<const Member> members, int64_t begin,
                            Blocks blocks, int64_t count) {
  // The first member that ends behind `begin`.
  auto member = std::partition_point(
      members.begin(), members.end(), [&](const Member &other) {
        return other.offset + other.elements <= begin;
      });
  int64_t end = begin + count * blockElements;
  for (int64_t at = begin; at < end;) {
    // Up to the member's end, or of none up to its beginning.
    bool within = member != members.end() && member->offset <= at;
    int64_t stop = member == members.end() ? end
                   : within                ? member->offset + member->elements
                                           : member->offset;
    int64_t elements = std::min(stop, end) - at;
    int64_t taken = (elements + blockElements - 1) / blockElements;
    toBlocks(gradientAt(part, at), part.type, within ? elements : 0,
             blocks.from((at - begin) / blockElements), taken);
    at += taken * blockElements;
    member += within;
  }
}

// Piece by piece. In the scratch memory each rank has a place among the blocks
// that are sent, and one among those received.
void BlockReducer::reduceScatter(Communicator &ranks, const ReduceScatter &part,
                                 std::span<const Member> members,
                                 BlockType blockType, void *scratch) {
  int count = ranks.size(), self = ranks.rank();
  int64_t all = part.shardElements / blockElements;
  int64_t most = fsdpc::reducedBlocks(count, blockType);
  Blocks sent{static_cast<char *>(scratch), blockType};
  Blocks received = sent.from(most * count);
  for (int64_t first = 0; first < all; first += most) {
    int64_t length = std::min(most, all - first);
    size_t bytes = size_t(length * blockBytes(blockType));
    sends.clear();
    receives.clear();
    for (int i = 0; i < count; ++i) {
      // Every rank begins with the one after it, so that not all send to one.
      int to = (self + i) % count, from = (self + count - i) % count;
      membersToBlocks(part, members, partOf(part, to) + first * blockElements,
                      sent.from(to * most), length);
      if (i == 0)
        continue;
      sends.push_back({to, sent.from(to * most).bytes, bytes});
      receives.push_back({from, received.from(from * most).bytes, bytes});
    }
    ranks.transfer(sends, receives);
    // The shard may lie inside the gradient, at the rank's own part, of which
    // this piece has been converted.
    for (int rank = 0; rank < count; ++rank)
      sumBlocks((rank == self ? sent : received).from(rank * most), length,
                rank == 0 && !part.add, part.shard + first * blockElements);
  }
}

} // namespace fsdpc::runtime

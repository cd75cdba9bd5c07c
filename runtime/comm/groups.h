// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Groups of ranks, for layouts that are cut over a group and replicated across
// groups. N ranks form N/G groups of G consecutive ranks. Rank m of a group
// holds part m of each layout, in every group.
#pragma once

#include "runtime/comm/communicator.h"

namespace fsdpc::runtime {

/// The ranks of a communicator that gave one color to split().
struct Group {
  std::vector<int> members; ///< ranks of the communicator, ascending
  int rank = 0;             ///< the calling rank's place in `members`
};
/// Collective: tells all ranks this rank's color.
Group groupOf(Communicator &whole, int color);

/// One channel's communicators within and across groups. All calls are
/// collective over all ranks of the channel.
class ShardGroups {
public:
  /// Splits a channel into groups of `groupRanks`. Fails if that does not
  /// divide the number of ranks. `whole` must outlive the result, which must be
  /// destroyed before the job.
  static Result<std::unique_ptr<ShardGroups>> make(Communicator &whole,
                                                   int groupRanks);

  /// The ranks of this rank's group. Parameters are gathered here.
  Communicator &inner() { return *group; }
  /// The ranks with this one's place in each group, by group.
  Communicator &across() { return *peers; }

  /// Sums the gradients of all ranks; member m of every group gets part m of
  /// the sum. `part.shardElements` is that of a layout sharded over a group.
  /// The sum runs over all ranks in rank order, so its bits are those of a
  /// reduce-scatter over all of them. With `part.add` it continues from
  /// `part.shard`, which is the same in all groups. `part.initial` must not be
  /// set.
  ///
  /// Each group continues the sums that the group before it hands on, piece by
  /// piece, and the last one sends them to all. The memory for that is
  /// groupCommunicationBytes (runtime/abi/staging.h).
  void reduceScatter(const ReduceScatter &part);

private:
  ShardGroups(std::unique_ptr<Communicator> group,
              std::unique_ptr<Communicator> peers);
  void reducePiece(const ReduceScatter &part, int64_t piece);
  void tradePieces(const ReduceScatter &part, int64_t tick);

  std::unique_ptr<Communicator> group, peers;
  const int own, last; ///< the numbers of this rank's group and of the last one
  std::vector<float> scratch;
  /// Pieces in `scratch`: sums from the group before, sums of this group, and
  /// complete sums from the last group.
  float *incoming = nullptr, *outgoing = nullptr, *complete = nullptr;
  std::vector<Outgoing>
      sends; ///< of a tick; kept, so that a step allocates none
  std::vector<Incoming> receives;
};

} // namespace fsdpc::runtime

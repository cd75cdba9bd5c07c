// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reduce-scatters over nodes that bring one value per element into a node,
// where there would be one for each rank of every other node. In rank order,
// each node continues the sums of the node before it, as ShardGroups does from
// group to group. Or each node sums its own ranks first, and then the sums of
// nodes are added, which sends less and has other bits.
#pragma once

#include "runtime/comm/communicator.h"

#include <vector>

namespace fsdpc::runtime {

/// For the ranks of equal nodes, whose ranks follow each other.
class NodeReducer {
public:
  /// `near` has the ranks of this rank's node and `far` those with its place in
  /// each node. Both must outlive it.
  NodeReducer(Communicator &near, Communicator &far)
      : near(near), far(far), own(far.rank()), last(far.size() - 1) {}

  /// Returns true if fewer bytes go into a node than if each rank sends its
  /// values, of `width` bytes, to each rank of another node.
  static bool pays(int nodes, int ranksPerNode, size_t width);
  /// Communicator::reduceScatter over all ranks, with the same bits.
  void reduceScatter(const ReduceScatter &part);
  /// The same, but sums the ranks of each node first, and then the nodes in
  /// their order.
  void sumNodesFirst(const ReduceScatter &part);

private:
  /// A piece of the part of the rank with this one's place in node `target`.
  struct Task {
    int target;
    int64_t first, length; ///< elements of the part
  };
  int64_t tasksOf(const ReduceScatter &part) const;
  Task taskOf(const ReduceScatter &part, int64_t number) const;
  bool isTask(const ReduceScatter &part, int64_t number) const {
    return number >= 0 && number < tasksOf(part);
  }
  const float *startOf(const ReduceScatter &part, const Task &task) const;
  void sum(const ReduceScatter &part, const Task &task);
  void handOn(const ReduceScatter &part, int64_t tick);
  void bringStarts(const ReduceScatter &part, int64_t number);
  void makeScratch();

  Communicator &near, &far;
  const int own, last; ///< the numbers of this rank's node and of the last one
  std::vector<float> scratch;
  /// Pieces in `scratch`: sums from the node before, or what the first node is
  /// to continue; sums of this node; and complete sums from the last node.
  float *incoming = nullptr, *outgoing = nullptr, *complete = nullptr;
  std::vector<Outgoing>
      sends; ///< of a tick; kept, so that a step allocates none
  std::vector<Incoming> receives;
};

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks on several nodes, which bring each byte of a gather into a node once.
// Each rank receives the shards of the ranks with its place in the other nodes,
// and the ranks of a node hand on to each other what they have received. Sums
// are handed from node to node where that sends less (node_reduction.h). The
// same idea is in NCCL's trees and in MPI libraries ("hierarchical
// collectives").
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/comm/node_reduction.h"

#include <span>

namespace fsdpc::runtime {

/// Where the ranks of a communicator are: rank r has place r % ranks of node
/// r / ranks.
struct NodeGrid {
  int nodes = 1, ranks = 1; ///< ranks per node

  int nodeOf(int rank) const { return rank / ranks; }
  int placeOf(int rank) const { return rank % ranks; }
  /// Returns true if there are several nodes of several ranks.
  bool isDeep() const { return nodes > 1 && ranks > 1; }
};

/// Returns the grid of ranks on these nodes, which are by rank. It is not deep
/// if nodes have different numbers of ranks, or ranks that do not follow each
/// other.
template <typename Node> NodeGrid gridOf(std::span<const Node> nodes) {
  const NodeGrid flat = {int(nodes.size()), 1};
  size_t ranks = 0;
  while (ranks < nodes.size() && nodes[ranks] == nodes[0])
    ++ranks;
  if (nodes.size() % ranks)
    return flat;
  for (size_t first = 0; first < nodes.size(); first += ranks) {
    for (size_t before = 0; before < first; before += ranks)
      if (nodes[before] == nodes[first])
        return flat;
    for (size_t rank = first; rank < first + ranks; ++rank)
      if (nodes[rank] != nodes[first])
        return flat;
  }
  return {int(nodes.size() / ranks), int(ranks)};
}

class NodeCommunicator : public Communicator {
public:
  /// `flat` has all ranks, `near` those of this rank's node and `far` those
  /// with its place in each node, in the order of the ranks. What is neither
  /// gathered nor reduced to shards goes over `flat`.
  NodeCommunicator(std::unique_ptr<Communicator> flat,
                   std::unique_ptr<Communicator> near,
                   std::unique_ptr<Communicator> far);

  int rank() const override { return flat->rank(); }
  int size() const override { return flat->size(); }
  void barrier() override { flat->barrier(); }
  void sumNodesFirst() override { sumsNodesFirst = true; }
  uint64_t sentToNodes() const override {
    return flat->sentToNodes() + far->sentToNodes();
  }
  std::unique_ptr<Communicator> split(int color) override {
    return flat->split(color);
  }

protected:
  void doAllGather(const void *shard, void *whole, size_t bytes,
                   size_t stride) override;
  void doReduceScatter(const ReduceScatter &part) override;
  void doReduceToOwners(std::span<const OwnedGradient> gradients, WireType wire,
                        bool add) override;
  void doShareOwned(std::span<const OwnedValues> values) override;
  void doAllReduce(double *values, int count) override;
  void doTransfer(std::span<const Outgoing> sends,
                  std::span<const Incoming> receives) override;

private:
  const std::unique_ptr<Communicator> flat, near, far;
  NodeReducer reducer;
  bool sumsNodesFirst = false;
};

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The smallest cut between two nodes of a graph, by Dinic's algorithm (Dinitz,
// 1970): flow is sent along shortest paths until none is left.
#pragma once

#include <cstddef>
#include <vector>

namespace fsdpc::schedule {

class MinCut {
public:
  explicit MinCut(int nodes) : edgesOf(nodes) {}

  /// Adds an edge. Its capacity is paid if `from` is on the source's side and
  /// `to` on the sink's.
  void addEdge(int from, int to, double capacity);

  /// Returns for each node whether it is on the source's side of the smallest
  /// cut; of equal cuts, the one with the fewest nodes there. Uses the
  /// capacities up, so it may be called once.
  std::vector<bool> solve(int source, int sink);

private:
  struct Edge {
    int to;
    double left; ///< capacity that is still free
  };

  std::vector<int> distances(int source) const;
  bool augment(const std::vector<int> &distance, std::vector<std::size_t> &next,
               int source, int sink);

  std::vector<Edge> edges; ///< an edge and its reverse are neighbours
  std::vector<std::vector<int>> edgesOf; ///< indices, by node
};

} // namespace fsdpc::schedule

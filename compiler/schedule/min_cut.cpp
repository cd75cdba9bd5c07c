// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dinic's algorithm without recursion, since a graph may have as many nodes in
// a row as a model has ops.
#include "compiler/schedule/min_cut.h"

#include <algorithm>
#include <limits>

namespace fsdpc::schedule {

// Capacities are around 1. Smaller numbers are rounding errors, and would send
// flow for ever.
static constexpr double least = 1e-12;

void MinCut::addEdge(int from, int to, double capacity) {
  edgesOf[from].push_back(static_cast<int>(edges.size()));
  edges.push_back({to, capacity});
  edgesOf[to].push_back(static_cast<int>(edges.size()));
  edges.push_back({from, 0});
}

// Returns the number of free edges from the source to each node, or -1 where
// none lead.
std::vector<int> MinCut::distances(int source) const {
  std::vector<int> distance(edgesOf.size(), -1), queue = {source};
  distance[source] = 0;
  for (size_t head = 0; head < queue.size(); ++head)
    for (int index : edgesOf[queue[head]]) {
      const Edge &edge = edges[index];
      if (edge.left <= least || distance[edge.to] >= 0)
        continue;
      distance[edge.to] = distance[queue[head]] + 1;
      queue.push_back(edge.to);
    }
  return distance;
}

// Sends flow along one shortest path, and returns false if there is none left.
// `next` holds, by node, the first edge that has not turned out to lead
// nowhere.
bool MinCut::augment(const std::vector<int> &distance,
                     std::vector<std::size_t> &next, int source, int sink) {
  std::vector<int> path; // edges
  int node = source;
  while (node != sink) {
    bool advanced = false;
    for (; next[node] < edgesOf[node].size(); ++next[node]) {
      int index = edgesOf[node][next[node]];
      if (edges[index].left <= least ||
          distance[edges[index].to] != distance[node] + 1)
        continue;
      path.push_back(index);
      node = edges[index].to;
      advanced = true;
      break;
    }
    if (advanced)
      continue;
    // A dead end: the edge that led here is not tried again.
    if (path.empty())
      return false;
    node = edges[path.back() ^ 1].to;
    path.pop_back();
    ++next[node];
  }
  double flow = std::numeric_limits<double>::infinity();
  for (int index : path)
    flow = std::min(flow, edges[index].left);
  for (int index : path) {
    edges[index].left -= flow;
    edges[index ^ 1].left += flow;
  }
  return true;
}

std::vector<bool> MinCut::solve(int source, int sink) {
  std::vector<int> distance;
  for (distance = distances(source); distance[sink] >= 0;
       distance = distances(source)) {
    std::vector<std::size_t> next(edgesOf.size());
    while (augment(distance, next, source, sink)) {
    }
  }
  std::vector<bool> isSource(edgesOf.size());
  std::transform(distance.begin(), distance.end(), isSource.begin(),
                 [](int steps) { return steps >= 0; });
  return isSource;
}

} // namespace fsdpc::schedule

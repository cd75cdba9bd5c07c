// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GroupGraph against a plain search: on random acyclic graphs every merge must
// answer as a walk over the contracted graph does, and long graphs must take
// no time.
#include "passes/kernels/GroupGraph.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

using fsdpc::passes::GroupGraph;

namespace {

// The same graph with sets of edges between groups, searched as a whole.
class PlainGraph {
public:
  explicit PlainGraph(int size) : group(size), readers(size) {
    for (int node = 0; node < size; ++node)
      group[node] = node;
  }
  void addEdge(int from, int to) { readers[from].insert(to); }

  bool merge(int a, int b) {
    if (group[a] == group[b])
      return true;
    if (detour(group[a], group[b]) || detour(group[b], group[a]))
      return false;
    int gone = group[b];
    for (int &each : group)
      if (each == gone)
        each = group[a];
    return true;
  }

private:
  // Returns true if a path leads from one group to the other through a third.
  bool detour(int from, int to) const {
    std::set<int> seen;
    std::vector<int> stack = {from};
    while (!stack.empty()) {
      int here = stack.back();
      stack.pop_back();
      for (size_t node = 0; node < group.size(); ++node) {
        if (group[node] != here)
          continue;
        for (int reader : readers[node]) {
          int next = group[reader];
          if (next == here || (here == from && next == to))
            continue;
          if (next == to)
            return true;
          if (seen.insert(next).second)
            stack.push_back(next);
        }
      }
    }
    return false;
  }

  std::vector<int> group;
  std::vector<std::set<int>> readers;
};

// Merging 0 and 2 would leave 1 both before and behind the group.
TEST(GroupGraph, RefusesATriangle) {
  GroupGraph graph(3);
  graph.addEdge(0, 1);
  graph.addEdge(1, 2);
  graph.addEdge(0, 2);
  EXPECT_FALSE(graph.merge(0, 2)); // through 1
  EXPECT_TRUE(graph.merge(0, 1));
  EXPECT_TRUE(graph.merge(0, 2)); // nothing is between them now
}

// No path leads between the two, so no cycle can arise.
TEST(GroupGraph, MergesWhatNothingConnects) {
  GroupGraph graph(4);
  graph.addEdge(0, 1);
  graph.addEdge(2, 3);
  EXPECT_TRUE(graph.merge(0, 3));
  EXPECT_FALSE(graph.merge(1, 2)); // 2 leads to the group, which leads to 1
}

// On random graphs, a merge is legal if and only if a search finds no other
// path.
TEST(GroupGraph, AnswersAsAPlainSearchDoes) {
  for (int seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](int end) { return int(random() % end); };
    int size = 2 + below(24);
    GroupGraph graph(size);
    PlainGraph plain(size);
    for (int edge = below(3 * size); edge > 0; --edge) {
      int a = below(size), b = below(size);
      if (a == b)
        continue;
      graph.addEdge(std::min(a, b), std::max(a, b));
      plain.addEdge(std::min(a, b), std::max(a, b));
    }
    for (int attempt = 0; attempt < 2 * size; ++attempt) {
      int a = below(size), b = below(size);
      ASSERT_EQ(graph.merge(a, b), plain.merge(a, b))
          << "seed " << seed << ", attempt " << attempt << ": " << a << ", "
          << b;
    }
  }
}

// A fan, then a chain of sums over it: each sum joins the one before and one
// member of the fan, which stands far away.
TEST(GroupGraph, MergesALongFan) {
  constexpr int kCount = 200000;
  GroupGraph graph(2 * kCount + 1);
  for (int i = 1; i <= kCount; ++i) {
    graph.addEdge(0, i);
    graph.addEdge(i, kCount + i);
    if (i > 1)
      graph.addEdge(kCount + i - 1, kCount + i);
  }
  for (int i = 2; i <= kCount; ++i) {
    ASSERT_TRUE(graph.merge(kCount + i - 1, kCount + i));
    ASSERT_TRUE(graph.merge(kCount + i, i));
  }
}

} // namespace

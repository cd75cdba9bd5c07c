// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Contracts nodes of an acyclic graph, whose topological order it maintains;
// see GroupGraph.h. Edges keep the node that they were added with, and are
// resolved by union-find when a search meets them.
#include "passes/kernels/GroupGraph.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

using namespace fsdpc::passes;

// The distance of labels in the beginning. Inserting halves the room, so a node
// can be inserted 20 times at one place before labels move.
static constexpr int64_t kGap = int64_t(1) << 20;

GroupGraph::GroupGraph(int size)
    : parent(size), readers(size), sources(size), next(size + 1),
      previous(size + 1), label(size + 1), mark(size, 0), head(size) {
  std::iota(parent.begin(), parent.end(), 0);
  // The list is circular through `head`, which has the lowest label and is no
  // node of the graph.
  for (int node = 0; node <= size; ++node) {
    next[node] = node == size ? 0 : node + 1;
    previous[node] = node == 0 ? size : node - 1;
    label[node] = (node + 1) * kGap;
  }
  label[head] = 0;
}

void GroupGraph::addEdge(int from, int to) {
  readers[from].push_back(to);
  sources[to].push_back(from);
}

int GroupGraph::find(int node) {
  while (parent[node] != node)
    node = parent[node] = parent[parent[node]];
  return node;
}

// Looks at one edge. `first` and `last` are the earlier and the later node of
// the merge; the edge that connects them directly is not a path.
GroupGraph::Found GroupGraph::advance(Side &side, bool forward, int first,
                                      int last) {
  // A side works off its nodes in the order in which it found them, one edge
  // per call.
  int from = side.seen[side.node];
  const auto &edges = forward ? readers[from] : sources[from];
  if (side.edge == edges.size()) {
    side.edge = 0;
    return ++side.node == side.seen.size() ? Found::Nothing : Found::More;
  }
  int start = forward ? first : last, goal = forward ? last : first;
  int to = find(edges[side.edge++]);
  // Edges within a merged node are loops that contraction left behind.
  if (to == from || (from == start && to == goal))
    return Found::More;
  // Marks of earlier searches differ in their number, so none has to be
  // cleared.
  int own = forward ? searches : -searches;
  if (to == goal || mark[to] == -own)
    return Found::Path;
  // Nodes outside the two ends cannot be on a path between them.
  bool between = label[first] < label[to] && label[to] < label[last];
  if (!between || mark[to] == own)
    return Found::More;
  mark[to] = own;
  side.seen.push_back(to);
  return Found::More;
}

bool GroupGraph::merge(int a, int b) {
  int first = find(a), last = find(b);
  if (first == last)
    return true;
  if (label[first] > label[last])
    std::swap(first, last);
  ++searches;
  // Both sides advance in turn, so the search costs no more than twice the
  // smaller side.
  Side forward{{first}}, backward{{last}};
  while (true) {
    Found ahead = advance(forward, /*forward=*/true, first, last);
    Found behind = ahead == Found::More
                       ? advance(backward, /*forward=*/false, first, last)
                       : Found::More;
    if (ahead == Found::Path || behind == Found::Path)
      return false;
    if (ahead == Found::More && behind == Found::More)
      continue;
    // The node with more edges keeps its own, as in union by size.
    int kept = first, gone = last;
    if (degree(kept) < degree(gone))
      std::swap(kept, gone);
    // The side that was exhausted holds all that its end reaches between the
    // two. Moved aside, nothing is left between that would contradict the
    // order.
    bool isForward = ahead == Found::Nothing;
    moveAside(isForward ? forward.seen : backward.seen, isForward, first, last);
    contract(kept, gone, isForward ? last : first);
    return true;
  }
}

// Lets `kept` stand for both nodes, in the place of `stays`, one of the two.
// The edges of `gone` are appended; duplicates do no harm.
void GroupGraph::contract(int kept, int gone, int stays) {
  if (kept != stays) {
    unlink(kept);
    insertAfter(stays, kept);
  }
  unlink(gone);
  parent[gone] = kept;
  for (auto *edges : {&readers, &sources}) {
    llvm::append_range((*edges)[kept], (*edges)[gone]);
    (*edges)[gone].clear();
  }
}

// Moves what `first` leads to behind `last` (forward), or what leads to `last`
// in front of `first`, in the order in which it stands.
void GroupGraph::moveAside(llvm::SmallVectorImpl<int> &nodes, bool forward,
                           int first, int last) {
  nodes.erase(nodes.begin()); // the end where the search began
  llvm::sort(nodes, [&](int a, int b) { return label[a] < label[b]; });
  int place = forward ? last : previous[first];
  for (int node : nodes) {
    unlink(node);
    insertAfter(place, node);
    place = node;
  }
}

void GroupGraph::unlink(int node) {
  next[previous[node]] = next[node];
  previous[next[node]] = previous[node];
}

void GroupGraph::insertAfter(int before, int node) {
  // The room behind a node; behind the last one there is always enough.
  auto room = [&] {
    int after = next[before];
    int64_t end = after == head ? label[before] + 2 * kGap : label[after];
    return (end - label[before]) / 2;
  };
  if (room() == 0)
    relabelAround(before);
  label[node] = label[before] + room();
  next[node] = next[before];
  previous[node] = before;
  previous[next[node]] = node;
  next[before] = node;
}

// Spreads the labels evenly in the smallest aligned range around the node that
// is sparse enough. The larger a range, the sparser it must be, so that the
// next relabelling of the same size is far away.
void GroupGraph::relabelAround(int node) {
  int first = node, last = node; // of the range; `head` has label 0
  int64_t count = 1;
  double most = 1;
  for (int64_t width = 2;; width *= 2) {
    // A range of 2^k labels may hold (2 / 1.4)^k nodes, the density bound of
    // Bender et al. for a factor of 1.4.
    most *= 2 / 1.4;
    int64_t low = label[node] & -width, high = low + width;
    while (first != head && previous[first] != head &&
           label[previous[first]] >= low) {
      first = previous[first];
      ++count;
    }
    while (next[last] != head && label[next[last]] < high) {
      last = next[last];
      ++count;
    }
    if (width / (count + 1) < 4 || double(count) > most)
      continue;
    int64_t step = width / (count + 1), value = low;
    for (int each = first;; each = next[each]) {
      if (each != head)
        label[each] = value += step;
      if (each == last)
        return;
    }
  }
}

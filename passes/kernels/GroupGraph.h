// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The graph of ops while they are grouped: merging two nodes answers at once if
// that would close a cycle, and otherwise contracts them.
//
// The nodes stand in a list that is always a topological order. A path between
// two nodes can only lead through nodes that stand between them, so a search
// goes from both ends at a time, and ends as soon as one side has seen all that
// it can reach there. Those nodes then move behind the later node (or in front
// of the earlier one), which keeps the order (after Pearce and Kelly, A Dynamic
// Topological Sort Algorithm, 2007, and XLA's GraphCycles). Each node has a
// label that grows along the list, as in Bender et al., Two Simplified
// Algorithms for Maintaining Order in a List, 2002.
//
// The graphs of models are local: most merges join neighbours and look at few
// edges. Walking all that an op depends on instead takes time quadratic in the
// length of a model.
#pragma once

#include "llvm/ADT/SmallVector.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdpc::passes {

/// Nodes are ints from 0 to size - 1. After a merge either number stands for
/// the merged node.
class GroupGraph {
public:
  /// Creates the nodes 0, 1, … in this order.
  explicit GroupGraph(int size);

  /// Adds an edge. `from` must be smaller than `to`, and nothing merged yet.
  void addEdge(int from, int to);

  /// Makes two nodes one. Returns false, and changes nothing, if a path through
  /// a third node connects them, since the new node would be on a cycle.
  bool merge(int a, int b);

private:
  /// One end of a search: what it has seen, and the edge that it looks at next.
  struct Side {
    llvm::SmallVector<int> seen;
    size_t node = 0, edge = 0;
  };
  /// The outcome of one step of a search: an edge that decides nothing yet, no
  /// more edges, or a path to the other end.
  enum class Found { More, Nothing, Path };

  /// Returns the representative of a merged node, with path halving.
  int find(int node);
  Found advance(Side &side, bool forward, int first, int last);
  /// `unlink` and `insertAfter` keep `next`, `previous` and `label` in step.
  void unlink(int node);
  void insertAfter(int before, int node);
  void relabelAround(int node);
  void moveAside(llvm::SmallVectorImpl<int> &nodes, bool forward, int first,
                 int last);
  void contract(int kept, int gone, int stays);
  /// The number of edges of a node; contraction moves those of the node that
  /// has fewer.
  size_t degree(int node) const {
    return readers[node].size() + sources[node].size();
  }

  std::vector<int> parent; ///< union-find
  std::vector<llvm::SmallVector<int, 2>> readers, sources;
  std::vector<int> next, previous; ///< the list, from and to `head`
  std::vector<int64_t> label;
  std::vector<int> mark; ///< ± the number of the search that saw the node
  int head, searches = 0;
};

} // namespace fsdpc::passes

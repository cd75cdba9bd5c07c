// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Longest processing time first (Graham, 1969): no rank has more than 4/3 of
// the least possible. FairScale's OSS deals parameters out in the order of the
// model, which leaves the last large one to an already full rank.
#include "runtime/abi/owners.h"

#include "runtime/support/concat.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace fsdpc {

bool hasOwners(const Manifest &manifest) {
  return std::any_of(manifest.layouts.begin(), manifest.layouts.end(),
                     [](const Layout &layout) { return layout.owned; });
}

// Stable, so that parameters of one size keep the order of layouts.
std::vector<int> ownersOf(const Manifest &manifest, int64_t ranks) {
  const std::vector<Layout> &layouts = manifest.layouts;
  std::vector<size_t> order(layouts.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return layouts[a].elements > layouts[b].elements;
  });
  std::vector<int> owners(layouts.size(), noOwner);
  // The bytes that each rank owns so far, with its number: the least on top, of
  // equals the lowest rank. Ranks past the number of layouts own nothing.
  using Load = std::pair<int64_t, int>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  int owning = int(std::min(ranks, int64_t(layouts.size())));
  for (int rank = 0; rank < owning; ++rank)
    loads.push({0, rank});
  for (size_t index : order) {
    if (!layouts[index].owned)
      continue;
    auto [elements, rank] = loads.top();
    loads.pop();
    loads.push({elements + layouts[index].elements, rank});
    owners[index] = rank;
  }
  return owners;
}

constexpr int64_t mostLines = 8;

std::string describeOwners(const Manifest &manifest, int64_t ranks,
                           const std::string &indent) {
  std::vector<int> owners = ownersOf(manifest, ranks);
  struct Load {
    int64_t parameters = 0, elements = 0;
  };
  std::vector<Load> loads(static_cast<size_t>(ranks));
  int64_t parameters = 0;
  for (size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] == noOwner)
      continue;
    Load &load = loads[size_t(owners[i])];
    ++parameters, ++load.parameters;
    load.elements += manifest.layouts[i].elements;
  }
  if (parameters == 0)
    return "";
  std::string text;
  // The first parameters go to one rank each, so idle ranks are the last.
  int64_t owning = std::min(ranks, parameters);
  for (int64_t rank = 0; rank < std::min(owning, mostLines); ++rank) {
    const Load &load = loads[size_t(rank)];
    text += concat(indent, "rank ", rank, " owns ", load.parameters,
                   load.parameters == 1 ? " parameter, " : " parameters, ",
                   load.elements, " elements\n");
  }
  if (owning > mostLines)
    text += concat(indent, "and so on up to rank ", owning - 1, "\n");
  if (parameters < ranks)
    text +=
        concat(indent, "the other ", ranks - parameters,
               " ranks own nothing: there are fewer parameters than ranks\n");
  return text;
}

} // namespace fsdpc

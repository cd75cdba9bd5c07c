// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order in which files list the parameters: the model's. Equal values then
// have equal files, whatever layouts a strategy and its flags make.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace fsdpc::runtime {

/// A parameter by the indices of its layout and of its place in that.
struct MemberPlace {
  size_t layout, member;
};

/// Returns the members of all layouts (Layout or StoredLayout) in the order of
/// the model. Members without positions, as in old checkpoints, keep the order
/// of the layouts.
template <class AnyLayout>
std::vector<MemberPlace> membersInOrder(const std::vector<AnyLayout> &layouts) {
  std::vector<MemberPlace> places;
  for (size_t i = 0; i < layouts.size(); ++i)
    for (size_t j = 0; j < layouts[i].members.size(); ++j)
      places.push_back({i, j});
  auto positionOf = [&](const MemberPlace &place) {
    return layouts[place.layout].members[place.member].position;
  };
  std::ranges::stable_sort(places, {}, positionOf);
  return places;
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/train/stragglers.h"

#include <algorithm>

namespace fsdpc::runtime {

// Every rank computes this from the same numbers, so all agree which one is
// slow. The counter stops one past `patience`, so that turnedSlow is true for
// one step only.
void Stragglers::add(const std::vector<double> &milliseconds) {
  slow.resize(milliseconds.size());
  sorted = milliseconds;
  auto at = sorted.begin() + std::ptrdiff_t((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), at, sorted.end());
  middle = *at;
  for (size_t rank = 0; rank < slow.size(); ++rank) {
    double own = milliseconds[rank];
    bool isSlow = own >= ratio * middle && own - middle >= leastExcess;
    slow[rank] = isSlow ? std::min(slow[rank] + 1, patience + 1) : 0;
  }
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The packer's last resort.
#pragma once

#include "compiler/schedule/packer.h"

namespace fsdpc::schedule {

/// Packs as small as the exact searches get, whatever the cap: where they
/// decide whether something fits, a larger cap never makes it fail. Takes up to
/// half a second.
inline Packing packHard(const std::vector<Interval> &intervals) {
  PackerOptions options;
  options.exact = true;
  options.cap = 0; // not reached, so only the lower bound is good enough
  options.work = 400'000'000;
  return pack(intervals, options);
}

} // namespace fsdpc::schedule

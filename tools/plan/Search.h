// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The search of `fsdpc tune`: which settings are planned, in which order, and
// which plans no other beats.
#pragma once

#include "tools/plan/Planner.h"

namespace fsdpc::plan {

struct SearchRequest {
  fsdp::CompileOptions options; ///< as given, with --plan-ranks and the machine
  schedule::Machine machine;
  int64_t cap = 0; ///< bytes of a rank; 0: none
  int64_t accumulate = 1;
  std::string batchDim; ///< of --dim, or empty
};

struct SearchResult {
  /// Every plan that was made within the cap, in the order of their making; the
  /// first is that of the flags as given, valid or not.
  std::vector<Point> points;
  /// Plans that would be above the cap, made without one. Their steps are what
  /// memory costs.
  std::vector<Point> over;
  /// Indices of points that no other beats in both step and peak, the fastest
  /// first. Empty if nothing fits.
  std::vector<size_t> front;
};

SearchResult search(Planner &planner, const SearchRequest &request);

} // namespace fsdpc::plan

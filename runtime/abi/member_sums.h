// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums over the elements of a parameter, which kernels and the runtime compute
// together (fsdpc_member_sums). Members and shards begin at multiples of the
// group, so no group is cut among ranks and its sum has the same bits under
// every strategy.
#pragma once

#include <cstdint>
#include <string_view>

namespace fsdpc {

/// Elements whose sum a kernel computes, in a fixed order. The runtime adds up
/// the groups.
constexpr int64_t sumGroup = 16;
/// Sums per member that a program may yield at most.
constexpr int32_t mostSums = 8;

/// Returns true if an optimizer of this name keeps averages of rows and columns
/// (runtime/abi/factors.h).
constexpr bool isFactored(std::string_view name) { return name == "adafactor"; }

/// Returns true if it takes updates of whole matrices.
constexpr bool isOrthogonal(std::string_view name) { return name == "muon"; }

/// Sums per member that an optimizer of this name takes: LAMB and LARS those of
/// two norms, Adafactor those of two root mean squares and of elements. Memory
/// is planned by it.
constexpr int32_t sumsOfOptimizer(std::string_view name) {
  return name == "lamb" || name == "lars" ? 2 : isFactored(name) ? 3 : 0;
}

} // namespace fsdpc

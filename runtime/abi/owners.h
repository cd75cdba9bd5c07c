// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Assigns the owners of layouts under the strategy oss. An owner is the rank
// that has the gradient, the optimizer's state and, in 16-bit programs, the
// master of a layout of one parameter. Owners follow from the manifest and the
// number of ranks, so every rank, the memory plan and the reader of a
// checkpoint find the same owners.
#pragma once

#include "runtime/abi/manifest.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc {

constexpr int noOwner = -1; ///< of a layout that is cut over ranks

/// Returns true if some layout has an owner.
bool hasOwners(const Manifest &manifest);

/// Returns the rank that owns each layout, by its index, or noOwner. The
/// largest goes first, to the rank that owns the fewest elements so far, of
/// equals to the lowest.
std::vector<int> ownersOf(const Manifest &manifest, int64_t ranks);

/// Returns "rank 0 owns 3 parameters, 1024 elements" and so on, a line for each
/// of the first ranks with `indent` in front of it. A last line says if there
/// are fewer parameters than ranks, so that some own nothing. Empty if no
/// layout has an owner.
std::string describeOwners(const Manifest &manifest, int64_t ranks,
                           const std::string &indent);

} // namespace fsdpc

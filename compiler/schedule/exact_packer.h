// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The packer's exact search: branch and bound for a packing of a given size.
#pragma once

#include "compiler/schedule/packer.h"

namespace fsdpc::schedule {

/// The order in which the search tries buffers with equal offsets: first the
/// one with the most bytes live beside it, the longest-lived, or the one with
/// the most bytes times life. It only affects how soon the search ends.
enum class Preference { Contention, Length, Area };

struct SearchOptions {
  Preference preference = Preference::Length;
  /// Seeds other than 0 perturb the preference: it is better to restart a
  /// search that has gone astray than to wait for it.
  unsigned seed = 0;
  /// Upper bound on the buffers and positions to look at.
  int64_t work = 1'000'000;
};

struct SearchResult {
  /// One offset per interval, or empty if nothing was found.
  std::vector<int64_t> offsets;
  /// Set if no packing of this size exists.
  bool impossible = false;
  int64_t work = 0; ///< the work that was used
};

/// Searches for offsets of `intervals`, none of which is fixed, such that no
/// buffer extends beyond `capacity`.
SearchResult packWithin(const std::vector<Interval> &intervals,
                        int64_t capacity, const SearchOptions &options);

} // namespace fsdpc::schedule

// The packer's exact search: branch and bound for a packing of a given size.
#ifndef FSDPC_COMPILER_SCHEDULE_EXACT_PACKER_H
#define FSDPC_COMPILER_SCHEDULE_EXACT_PACKER_H

#include "compiler/schedule/packer.h"

namespace fsdpc::schedule {

/// Which of several buffers that can lie at one offset the search tries first:
/// that with the most bytes alive beside it, the longest-lived, or the one of
/// most bytes times life. It decides nothing but how soon the search ends.
enum class Preference { Contention, Length, Area };

struct SearchOptions {
  Preference preference = Preference::Length;
  /// Other seeds than 0 shake the preference: a search that has gone astray is
  /// better begun anew than waited for.
  unsigned seed = 0;
  /// Most buffers and positions to look at.
  int64_t work = 1'000'000;
};

struct SearchResult {
  /// One an interval, or empty if nothing was found.
  std::vector<int64_t> offsets;
  /// Nothing was found because there is nothing.
  bool impossible = false;
  int64_t work = 0; ///< that was used
};

/// Looks for offsets of `intervals`, none of which is fixed, such that none
/// reaches past `capacity`.
SearchResult packWithin(const std::vector<Interval> &intervals,
                        int64_t capacity, const SearchOptions &options);

} // namespace fsdpc::schedule

#endif // FSDPC_COMPILER_SCHEDULE_EXACT_PACKER_H

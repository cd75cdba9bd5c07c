// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sets of ops of a unit that are worth computing again in the backward.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace fsdpc::schedule {

/// An op of the forward that may run again in the backward.
struct RepeatableOp {
  double costUs = 0;
  bool always = false; ///< runs again in any case, and then costs nothing
};

/// Memory that an op of the forward writes, and that must be kept for the
/// backward unless the op runs again.
struct KeepableValue {
  int64_t bytes = 0;
  /// The index of the op that writes it; none for a value from elsewhere, which
  /// cannot be computed again.
  std::optional<int> producer;
  /// The backward reads the value.
  bool isRead = false;
  /// The repeatable ops that read it: one that runs again reads it then.
  std::vector<int> readers;
};

struct RepeatableUnit {
  std::vector<RepeatableOp> ops;
  std::vector<KeepableValue> values;
};

/// A choice of ops to compute again.
struct RepeatedOps {
  std::vector<int> ops; ///< without those that always run again; ascending
  double costUs = 0;
  int64_t keptBytes = 0;
};

/// Returns the time and the kept bytes if exactly these ops run again besides
/// those that always do.
RepeatedOps costOfRepeating(const RepeatableUnit &unit, std::vector<int> ops);

/// Returns the choices on the lower convex hull of time and kept bytes, from
/// the empty one to the cheapest of those that keep the fewest bytes. Each
/// keeps fewer bytes than the one before it, for more time.
std::vector<RepeatedOps> repeatingOptions(const RepeatableUnit &unit);

} // namespace fsdpc::schedule

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads what a program's --trace has measured for the planner: the commands of
// microbatches. The runtime writes the file (runtime/train/trace.h).
#pragma once

#include "runtime/support/status.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdpc::schedule {

/// A command that a stream has run. Times are in µs, those of a microbatch in
/// their own order.
struct TracedCommand {
  double beginUs = 0, us = 0;
  int64_t stream = 0, step = 0, microbatch = 0, flops = 0;
  std::string op, title, unit;
  bool backward = false;

  /// True if an op with a cost became this command; false for collectives and
  /// for what accumulates gradients.
  bool computes() const;
};

/// The commands of microbatches, by their begins. Waits, entries and updates
/// are left out.
struct Trace {
  std::vector<TracedCommand> commands;

  /// Step and microbatch.
  using Microbatch = std::pair<int64_t, int64_t>;
  /// Returns the commands that compute, of each microbatch. They point into
  /// `commands`.
  std::map<Microbatch, std::vector<const TracedCommand *>> microbatches() const;
};

/// Reads the text of a trace. Events that are not as the runtime writes them
/// are left out; a text without any command is an error.
Result<Trace> parseTrace(std::string_view text);

} // namespace fsdpc::schedule

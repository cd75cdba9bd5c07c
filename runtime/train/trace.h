// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes for --trace when each command of each stream ran, as Chrome trace
// events, which Perfetto reads too. During training, a stream only stores
// times, in memory allocated before the first step. Names are looked up in the
// manifest when the run ends.
#pragma once

#include "runtime/core/rank.h"
#include "runtime/support/status.h"

#include <string>

namespace fsdpc::runtime {

/// The trace of one rank. Before `open` every other call does nothing.
class Trace {
public:
  /// Returns the path of one rank's file: of several ranks, rank 3 writes
  /// run.3.json for run.json.
  static std::string pathOf(const std::string &path, int rank, int ranks);
  /// Checks that this rank's file can be written.
  Status open(const std::string &path, int rank, int ranks);
  /// Allocates the memory for times; before the first step.
  void start(fsdpc_rank &rank, int64_t accumulate);
  /// `enter` marks that an entry function of the program is about to be called,
  /// `leave` that its step has ended.
  void enter(const fsdpc_rank &rank, const char *entry);
  void leave();
  /// Writes the last steps, as many as were kept. All commands must have run.
  Status write(const fsdpc_rank &rank);

private:
  using Positions = std::array<uint64_t, FSDPC_STREAMS>;
  /// One call of an entry function, and where its commands begin.
  struct Entry {
    const char *name;
    int64_t step, microbatch, begin, end;
    Positions first;
  };

  void writeEntry(const fsdpc_rank &rank, const Entry &entry,
                  const Positions &next, std::string &text) const;

  std::string path; ///< empty: no trace is taken
  /// The number of commands whose times each stream keeps.
  std::array<size_t, FSDPC_STREAMS> kept{};
  std::vector<Entry> entries; ///< a ring buffer
  uint64_t entered = 0;
};

} // namespace fsdpc::runtime

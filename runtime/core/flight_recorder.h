// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Records what a rank was doing when it stopped: the last commands of each
// stream, and what the training loop waited for. A step only notes where its
// sections begin on each stream, in memory of a fixed size; names are looked up
// in the manifest when someone asks (as for --trace).
//
// The loop's thread writes, and any thread reads.
#pragma once

#include "runtime/core/rank.h"
#include "runtime/support/status.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace fsdpc::runtime {

class FlightRecorder {
public:
  /// Keeps a reference to the rank.
  explicit FlightRecorder(const fsdpc_rank &rank) : rank(rank) {}

  /// Notes that an entry function is about to be called, or what the loop does
  /// next. The texts must outlive the recorder.
  void enter(const char *entry);
  void at(const char *what);
  /// Returns a number that changes whenever the loop or a stream gets on.
  uint64_t progress() const;

  /// The section and step that the rank is in.
  struct Place {
    std::string text;            ///< "step 12, unit 'h.3': reduce_scatter"
    bool waitsForOthers = false; ///< it waits in a collective
  };
  Place place() const;
  /// Writes the last commands of each stream as JSON.
  Status write(const std::string &path) const;

private:
  /// A call of an entry function, and where its commands begin.
  struct Entry {
    const char *name = "";
    int64_t step = 0, microbatch = 0;
    std::array<uint64_t, FSDPC_STREAMS> first{};
  };
  struct Command {
    const Entry *entry = nullptr; ///< null: older than what is kept
    const Call *call = nullptr;   ///< null for a wait, too
    bool isWait = false;
  };
  Command find(int stream, uint64_t position) const;
  std::string titleOf(const Command &command) const;

  const fsdpc_rank &rank;
  mutable std::mutex mutex; ///< guards the entries
  std::array<Entry, 16> entries;
  uint64_t entered = 0;
  std::atomic<const char *> doing{"starting"};
  std::atomic<uint64_t> changes{0};
};

} // namespace fsdpc::runtime

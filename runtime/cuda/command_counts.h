// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells the flight recorder how far the streams that communicate have come, as
// positions among the program's calls. The marks that the watchdog sets around
// each collective count them on the stream, also in a replayed graph; how many
// collectives each call of a section takes is noted when it is enqueued. So
// this costs the device nothing. The compute stream has no marks: one after
// each kernel would cost more than it tells.
//
// The thread of the rank writes, and any thread reads.
#pragma once

#include "runtime/cuda/collectives.h"

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace fsdpc::runtime {

class CommandCounts {
public:
  /// Counts from here on. `channels` must outlive this; without it, as on a
  /// single rank, all counts stay 0.
  void start(const CollectiveChannels &channels);
  /// Surround what a section enqueues or replays. Sections of one entry
  /// function enqueue the same calls.
  void begin(const Section &section);
  void end();
  /// Notes a call on a stream, and that the collectives that follow on a
  /// channel are the last call's.
  void called(int stream);
  void announced(Channel channel);

  /// Return how many calls have been enqueued on a stream, how many of them
  /// have run, and whether the next one has begun.
  uint64_t enqueued(int stream) const;
  uint64_t completed(int stream) const;
  bool hasBegun(int stream) const;

private:
  /// The commands that the sections of an entry function enqueue; counted in
  /// the first one.
  struct Kind {
    bool isKnown = false;
    std::array<uint64_t, FSDPC_STREAMS> calls{};
    std::array<uint64_t, 2> collectives{};
    /// Per channel: the first collective of a call, and the call's place.
    std::array<std::vector<std::pair<uint64_t, uint64_t>>, 2> firstOf;
  };
  struct Begun {
    const Kind *kind = nullptr;
    std::array<uint64_t, FSDPC_STREAMS> firstCall{};
    std::array<uint64_t, 2> firstCollective{};
  };
  static int channelOf(int stream);
  uint64_t collectives(int channel) const;

  const CollectiveChannels *channels = nullptr;
  mutable std::mutex mutex; ///< guards what follows
  std::map<Section::Entry, Kind> kinds;
  Kind *current = nullptr; ///< of the section that is being enqueued
  std::array<Begun, 16> sections;
  uint64_t begun = 0; ///< sections
  /// The calls that the current section has made; a replay makes none.
  std::array<uint64_t, FSDPC_STREAMS> made{};
  /// Before the current section: calls, collectives, and of these the ones that
  /// the channels have counted, which are those of no replay.
  std::array<uint64_t, FSDPC_STREAMS> calls{};
  std::array<uint64_t, 2> before{}, counted{};
};

} // namespace fsdpc::runtime

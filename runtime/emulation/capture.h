// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stream capture and graphs. A capture keeps the work of each participating
// stream as a lane, and how lanes wait for each other. A graph replays the
// lanes, each on a thread of its own. Waits are vector clocks (Mattern, 1989):
// a lane that waits for another takes over how much of every lane's work
// precedes that point. At the end the same clocks tell whether all lanes have
// joined.
#pragma once

#include "runtime/emulation/stream.h"

#include <memory>
#include <thread>
#include <vector>

namespace fsdpc::runtime::emulation {

/// A point in time: the number of pieces of work per lane that precede it.
using Clock = std::vector<size_t>;

/// A piece of a lane's work, and what must have run before it.
struct Step {
  Clock after; ///< may be shorter than the number of lanes
  Work work;
};

/// An instantiated graph; it may be launched any number of times.
class Graph {
public:
  /// Takes over the work. `device` must outlive the graph; `seed` is of the
  /// lanes' delays.
  Graph(std::vector<std::vector<Step>> lanes, Device &device, uint64_t seed);
  /// Runs all lanes, the first of them on the calling thread, and returns when
  /// all are done. Only one run at a time is allowed; others wait.
  void run(Chance &chance);
  Device &device;

private:
  void runLane(size_t lane, Chance &chance);

  std::vector<std::vector<Step>> lanes;
  std::mutex running;
  std::mutex mutex; ///< guards `progress`
  std::condition_variable changed;
  Clock progress; ///< work done by each lane in this run
  /// One per lane, except the first.
  std::vector<std::unique_ptr<Stream>> workers;
};

/// A capture under way. Not thread-safe; the owner locks.
class Capture {
public:
  Capture(Device &device) : device(device) {}

  /// Adds a lane for a stream that joins after `clock`, and returns its number.
  size_t addLane(const Clock &clock);
  /// Appends work to a lane, after everything that the lane has waited for.
  void add(size_t lane, Work work);
  const Clock &clockOf(size_t lane) const { return clocks[lane]; }
  /// Makes later work of the lane follow everything before `clock`.
  void wait(size_t lane, const Clock &clock);
  /// Returns true if all work precedes the end of the first lane.
  bool isJoined() const;
  /// Moves the work into a graph; the capture is used up.
  std::unique_ptr<Graph> instantiate(uint64_t seed);

  /// The thread that began the capture: only it may end it, and its unsafe
  /// calls are refused until then.
  const std::thread::id thread = std::this_thread::get_id();
  bool invalid = false; ///< a rule of capture was broken
  Device &device;

private:
  std::vector<std::vector<Step>> lanes;
  std::vector<Clock> clocks; ///< at the end of each lane
};

} // namespace fsdpc::runtime::emulation

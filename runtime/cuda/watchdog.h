// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ends the job when a collective does not end. Each channel marks where its
// collectives begin and end, on its stream and on the host, and a thread
// watches whether the marks move. The thread also asks the communicators for
// asynchronous errors, which no call returns.
//
// A mark on a stream is a small kernel that writes to pinned memory. So it is
// captured in graphs together with the collective that it surrounds. Two marks
// cost a few microseconds of a stream that computes nothing.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/cuda/api.h"
#include "runtime/support/status.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fsdpc::runtime {

class Watchdog {
public:
  /// A collective may take so many seconds in the first step, and in later
  /// ones; 0 means no limit.
  struct Limits {
    double first, later;
  };
  /// `compute` is the stream on which sections begin. Fails if there is no
  /// pinned memory.
  static Result<std::unique_ptr<Watchdog>>
  make(CudaApi &api, Job &job, Limits limits, CudaStream compute);
  ~Watchdog();
  Watchdog(const Watchdog &) = delete;

  /// Watches a communicator: asks it for errors, aborts it if the job ends, and
  /// destroys it in the destructor, the last one first, within the time of a
  /// collective. The caller must not destroy it.
  void watch(Channel channel, CudaCommunicator communicator);

  /// Marks that later work belongs to `step`.
  void beginStep(int64_t step);
  /// Returns the number under which marks name a collective. The strings must
  /// outlive the watchdog.
  uint32_t nameOf(const char *op, const char *unit);
  /// Mark that a collective begins or has ended: on the host, where it may wait
  /// for other ranks, and on the stream.
  void markHost(Channel channel, uint32_t name, bool begins);
  void markStream(Channel channel, uint32_t name, bool begins,
                  CudaStream stream);

  /// Collectives of a channel that markStream has seen, and the marks that its
  /// stream has reached, in 32 bits. Any thread may call them.
  uint64_t enqueued(Channel channel) const { return marked[channel]; }
  uint32_t marks(Channel channel) const;

  /// Describes a collective for messages: "rank 1, step 12, unit 'h.3':
  /// all_gather".
  std::string describe(uint32_t name);
  /// Ends the job if a call of the table failed.
  void check(uint32_t name, CudaStatus status);

private:
  Watchdog(CudaApi &api, Job &job, Limits limits, CudaStream compute,
           uint64_t *words);
  /// Returns true until the compute stream has reached the second step.
  bool inFirstStep() const;
  /// The thread: looks until the destructor stops it.
  void loop();
  void look();
  /// Tells the thread to stop and waits until it has.
  void stop();
  /// The thread while communicators are destroyed: ends the job if that takes
  /// too long.
  void limitEnd(uint32_t name);
  /// Removes the last communicator of a channel and returns it; null if there
  /// is none.
  CudaCommunicator takeLast(Channel channel);
  /// Returns the first error of a channel's communicators.
  CudaStatus stateOf(Channel channel);
  /// Ends the job because something has exceeded the limit of its step.
  [[noreturn]] void endLate(uint32_t name);
  /// Ends the job if a launch failed, which is no fault of another rank.
  void checkLaunch(uint32_t name, CudaStatus status);
  /// Prints the error in this rank's turn (awaitTurn) and ends the job.
  [[noreturn]] void end(const Error &error, bool later);

  /// The marks that the thread saw at its last look at a channel.
  struct Progress {
    uint64_t stream = 0, host = 0; ///< the marks when they last moved
    std::chrono::steady_clock::time_point since;
  };

  CudaApi &api;
  Job &job;
  const Limits limits;
  CudaStream compute;
  uint64_t *const words; ///< pinned: a mark per channel, then the step
  /// The host's marks, in the format of `words`. The rank's thread writes them.
  std::array<std::atomic<uint64_t>, 2> hosts{};
  std::array<std::atomic<uint64_t>, 2> marked{}; ///< by the thread of the rank
  /// The step of the first section, which is not 0 if the run was resumed;
  /// negative before that section.
  std::atomic<int64_t> firstStep = -1;
  /// Used by the thread only.
  std::array<Progress, 2> seen;
  std::mutex mutex; ///< guards the members below
  std::array<std::vector<CudaCommunicator>, 2> communicators; ///< by channel
  /// Operation and unit by number, and the inverse map.
  std::vector<std::pair<const char *, const char *>> names;
  std::map<std::pair<const char *, const char *>, uint32_t> numbers;
  bool stopping = false;
  std::condition_variable changed;
  std::thread thread;
};

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compute threads of one rank: a fork-join pool in which the calling thread
// takes part. Threads take pieces from a shared counter, so the work balances
// itself when other programs use the cores too. Which thread runs which piece
// is not determined; results must not depend on it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace fsdpc::runtime {

class ThreadPool {
public:
  /// `threads` includes the caller of run(), so threads - 1 are started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  int threads() const { return int(workers.size()) + 1; }

  /// Calls body(piece, thread) for each piece in [0, pieces), with `thread` in
  /// [0, threads()), and returns when all have run. Only one thread may call it
  /// at a time. `pieces` must be less than 2^32 - 1, the ticket's mark of a
  /// closed job. `body` must not throw.
  template <typename Body> void run(int64_t pieces, Body &&body) {
    using Type = std::remove_reference_t<Body>;
    fork(pieces, &body, [](const void *context, int64_t piece, int thread) {
      (*static_cast<const Type *>(context))(piece, thread);
    });
  }

private:
  using Function = void (*)(const void *context, int64_t piece, int thread);

  void fork(int64_t pieces, const void *context, Function function);
  void work(int thread);
  /// Runs pieces of the current job until none is left.
  void takePieces(int thread);

  /// The current job. The caller writes it while the ticket is closed, then
  /// publishes it in `ticket`: the job's number in the high half, the next
  /// piece in the low half. A thread takes a piece by a compare-and-exchange on
  /// the ticket, so one that wakes late cannot touch another job than the one
  /// whose piece it got. And the caller need not wait for threads that got no
  /// piece: on shared cores, waking them may take longer than the whole job.
  std::atomic<Function> function{nullptr};
  std::atomic<const void *> context{nullptr};
  std::atomic<uint32_t> pieces{0};
  std::atomic<uint64_t> ticket{0};
  std::atomic<uint32_t> done{0}; ///< pieces that have run
  static uint32_t jobOf(uint64_t ticket) { return uint32_t(ticket >> 32); }

  std::atomic<bool> stopping{false};
  std::mutex mutex;
  std::condition_variable started, finished;
  std::vector<std::thread> workers;
};

} // namespace fsdpc::runtime

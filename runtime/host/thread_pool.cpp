// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fork-join over the compute threads; see thread_pool.h for how the ticket
// keeps late threads from taking pieces of another job.
#include "runtime/host/thread_pool.h"
#include "runtime/comm/spin.h"
#include "runtime/comm/thread.h"
#include "runtime/host/openmp.h"

namespace fsdpc::runtime {

ThreadPool::ThreadPool(int threads) {
  for (int thread = 1; thread < threads; ++thread)
    workers.push_back(startThread("computing", [this, thread] {
      // Primitives are single-threaded: oneDNN must not start OpenMP threads
      // here.
      omp_set_num_threads(1);
      work(thread);
    }));
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  started.notify_all();
  for (std::thread &worker : workers)
    worker.join();
}

// Publishes a job, takes part in it, and waits for its last piece.
void ThreadPool::fork(int64_t newPieces, const void *newContext,
                      Function newFunction) {
  if (newPieces <= 1 || workers.empty()) {
    for (int64_t piece = 0; piece < newPieces; ++piece)
      newFunction(newContext, piece, 0);
    return;
  }
  // Closes the ticket: no thread can take a piece of a job that is half
  // written. A piece number of all ones is past the end of every job.
  ticket = ticket | 0xffffffff;
  function = newFunction;
  context = newContext;
  pieces = uint32_t(newPieces);
  done = 0;
  {
    // Under the lock, or a worker could check, miss the new job and then sleep.
    std::lock_guard<std::mutex> lock(mutex);
    // Job numbers wrap; only equality counts.
    ticket = uint64_t(jobOf(ticket) + 1) << 32;
  }
  started.notify_all();
  takePieces(0);
  auto allDone = [&] { return done.load() == newPieces; };
  // Threads that are about to finish are cheaper to wait for than to sleep for.
  if (spinFor20Microseconds(allDone))
    return;
  std::unique_lock<std::mutex> lock(mutex);
  finished.wait(lock, allDone);
}

// `seen` is the last job that this thread has looked at, so it does not wake
// twice for one.
void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    auto ready = [&] { return jobOf(ticket) != seen || stopping.load(); };
    if (!spinFor20Microseconds(ready)) {
      std::unique_lock<std::mutex> lock(mutex);
      started.wait(lock, ready);
    }
    if (stopping)
      return;
    seen = jobOf(ticket);
    takePieces(thread);
  }
}

// The caller is thread 0 and need not be notified of its own last piece.
void ThreadPool::takePieces(int thread) {
  for (;;) {
    uint64_t current = ticket;
    uint32_t piece = uint32_t(current), count = pieces;
    Function call = function;
    const void *argument = context;
    if (piece >= count)
      return;
    // Succeeds only if `call`, `argument` and `count` belong to this ticket's
    // job.
    if (!ticket.compare_exchange_strong(current, current + 1))
      continue;
    call(argument, piece, thread);
    if (++done == count && thread != 0) {
      // Under the lock, or the caller could check, miss the end and then sleep.
      std::lock_guard<std::mutex> lock(mutex);
      finished.notify_one();
    }
  }
}

} // namespace fsdpc::runtime

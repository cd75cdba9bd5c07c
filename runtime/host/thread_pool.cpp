// Fork-join over the compute threads; see thread_pool.h.
#include "runtime/host/thread_pool.h"
#include "runtime/comm/spin.h"

#include <omp.h>

namespace fsdpc {

ThreadPool::ThreadPool(int threads) {
  for (int thread = 1; thread < threads; ++thread)
    workers.emplace_back([this, thread] {
      // Primitives are single-threaded; oneDNN must not open a team of its own.
      omp_set_num_threads(1);
      work(thread);
    });
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

void ThreadPool::fork(int64_t newPieces, const void *newContext,
                      Function newFunction) {
  if (newPieces <= 1 || workers.empty()) {
    for (int64_t piece = 0; piece < newPieces; ++piece)
      newFunction(newContext, piece, 0);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex);
    function = newFunction;
    context = newContext;
    pieces = newPieces;
    next = 0;
    running = int(workers.size());
    ++generation;
  }
  started.notify_all();
  takePieces(0);
  auto done = [&] { return running.load() == 0; };
  if (spinFor20Microseconds(done))
    return;
  std::unique_lock<std::mutex> lock(mutex);
  finished.wait(lock, done);
}

void ThreadPool::work(int thread) {
  uint64_t seen = 0;
  for (;;) {
    auto ready = [&] { return generation.load() != seen || stopping.load(); };
    if (!spinFor20Microseconds(ready)) {
      std::unique_lock<std::mutex> lock(mutex);
      started.wait(lock, ready);
    }
    if (stopping)
      return;
    seen = generation;
    takePieces(thread);
    if (running.fetch_sub(1) == 1) {
      // The lock closes the gap between the caller's last look and its sleep.
      std::lock_guard<std::mutex> lock(mutex);
      finished.notify_one();
    }
  }
}

void ThreadPool::takePieces(int thread) {
  for (int64_t piece; (piece = next.fetch_add(1)) < pieces;)
    function(context, piece, thread);
}

} // namespace fsdpc

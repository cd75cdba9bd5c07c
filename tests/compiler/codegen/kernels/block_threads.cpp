// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of HostThreads.h on POSIX threads: a barrier is a POSIX
// barrier, and a shuffle is an array between two of them.
#include "tests/compiler/codegen/kernels/block_threads.h"

#include <map>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <vector>

using namespace fsdpc;

namespace {

constexpr int64_t kWarp = 32;

class Barrier {
public:
  explicit Barrier(int64_t threads) {
    pthread_barrier_init(&barrier, nullptr, threads);
  }
  ~Barrier() { pthread_barrier_destroy(&barrier); }
  void wait() { pthread_barrier_wait(&barrier); }

private:
  pthread_barrier_t barrier;
};

struct ThreadBlock {
  explicit ThreadBlock(int64_t threads) : all(threads), exchanged(threads) {
    for (int64_t first = 0; first < threads; first += kWarp)
      warps.push_back(
          std::make_unique<Barrier>(std::min(kWarp, threads - first)));
  }

  // The barrier of this number, made by the first thread that comes.
  Barrier &ofTeam(int32_t number, int32_t threads) {
    std::lock_guard<std::mutex> lock(mutex);
    auto &known = teams[number];
    if (!known)
      known = std::make_unique<Barrier>(threads);
    return *known;
  }

  Barrier all;
  std::mutex mutex;
  std::map<int32_t, std::unique_ptr<Barrier>> teams;
  std::vector<std::unique_ptr<Barrier>> warps;
  std::vector<int32_t> exchanged;
  alignas(16) char shared[48 << 10];
};

thread_local ThreadBlock *block;
thread_local int32_t thread;

} // namespace

int32_t fsdpc_simt_thread() { return thread; }

void fsdpc_simt_barrier() { block->all.wait(); }

void fsdpc_simt_warp_barrier() { block->warps[thread / kWarp]->wait(); }

void fsdpc_simt_team_barrier(int32_t number, int32_t threads) {
  block->ofTeam(number, threads).wait();
}

int32_t fsdpc_simt_shuffle(int32_t value, int32_t offset) {
  block->exchanged[thread] = value;
  fsdpc_simt_warp_barrier();
  int32_t result = block->exchanged[thread ^ offset];
  fsdpc_simt_warp_barrier();
  return result;
}

void *fsdpc_simt_shared(int64_t) { return block->shared; }

void testing::runBlocks(int64_t threads, int64_t begin, int64_t end,
                        const std::function<void(int64_t)> &body) {
  ThreadBlock state(threads);
  std::vector<std::thread> running;
  for (int64_t number = 0; number < threads; ++number)
    running.emplace_back([&, number] {
      block = &state;
      thread = static_cast<int32_t>(number);
      for (int64_t b = begin; b < end; ++b) {
        body(b);
        // The next block uses the same shared memory.
        state.all.wait();
      }
    });
  for (std::thread &each : running)
    each.join();
}

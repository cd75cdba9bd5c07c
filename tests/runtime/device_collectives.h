// One rank of the tests of a GPU's collectives. The tests are linked once with
// the emulation and once with CUDA's libraries, for a machine with a GPU.
#pragma once

#include "runtime/core/device.h"
#include "runtime/cuda/collectives.h"
#include "tests/runtime/collective_cases.h"

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

namespace fsdpc::testing {

using namespace fsdpc::runtime;

constexpr int64_t most = 70016; // elements per shard
enum class Kind { peer, nccl, deterministic };

// ---- defined once for each side of the table ----

// Runs a test's ranks on the emulation, or on the first GPU.
class Rank;
void onRanks(int ranks, Kind kind, const std::function<void(Rank &)> &body);
// The kinds and numbers of ranks that are possible there.
std::vector<std::tuple<Kind, int>> kindsAndRanks();
// Allocate and free memory that collectives use as a device's, and that the
// host can read and write while it keeps what accessToMemory() returns.
CudaStatus allocateVisible(CudaApi &api, void *&memory, size_t bytes);
CudaStatus freeVisible(CudaApi &api, void *memory);
std::shared_ptr<void> accessToMemory();

// ---- the same for both ----

inline void expectOk(CudaStatus status) { ASSERT_EQ(status, cudaOk); }

// One rank with its streams, memory and channels.
class Rank {
public:
  // `firstStep` is the limit of the first step; negative: that of later ones.
  Rank(CudaApi &api, Job &job, Kind kind, double watchdog,
       double firstStep = -1)
      : access(accessToMemory()), api(api), job(job) {
    expectOk(api.selectDevice(0));
    job.sharesProcess = kind == Kind::peer;
    CollectiveResources resources;
    for (CudaStream *stream :
         {&resources.compute, &resources.gather, &resources.reduce})
      expectOk(api.createStream(*stream, true));
    streams = {resources.compute, resources.gather, resources.reduce};
    resources.bytes = size_t(most) * size_t(job.size) * 16;
    expectOk(allocateVisible(api, resources.memory, resources.bytes));
    memory = static_cast<char *>(resources.memory);
    whole = memory;
    shard = reinterpret_cast<float *>(memory + resources.bytes / 2);
    resources.scratch = memory + resources.bytes / 4 * 3;
    DeviceOptions options;
    options.deterministic = kind == Kind::deterministic;
    options.watchdogSeconds = options.joinSeconds = watchdog;
    options.firstStepSeconds = firstStep < 0 ? watchdog : firstStep;
    auto made = makeCollectives(api, job, options, resources);
    EXPECT_TRUE(made) << made.error().message;
    if (made)
      channels = std::move(*made);
  }
  ~Rank() {
    for (CudaStream stream : streams)
      expectOk(api.synchronizeStream(stream));
    job.channel[controlChannel]->barrier();
    for (auto &channel : channels)
      channel.reset();
    for (CudaStream stream : streams)
      expectOk(api.destroyStream(stream));
    expectOk(freeVisible(api, memory));
  }

  void synchronize(Channel channel) {
    expectOk(api.synchronizeStream(streams[channel + 1]));
  }

  std::shared_ptr<void> access; // the test reads and writes device memory
  CudaApi &api;
  Job &job;
  std::array<CudaStream, 3> streams; // compute, and one per channel
  CollectiveChannels channels;
  char *memory = nullptr, *whole = nullptr;
  float *shard = nullptr;
};

// Runs `body` for each rank, on a thread of its own.
inline void onRanksOf(CudaApi &api, int ranks, Kind kind,
                      const std::function<void(Rank &)> &body,
                      double watchdog = 0, double firstStep = -1) {
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Rank own(api, *jobs[size_t(rank)], kind, watchdog, firstStep);
      body(own);
    });
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace fsdpc::testing

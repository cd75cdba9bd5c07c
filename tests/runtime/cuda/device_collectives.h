// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of the tests of a GPU's collectives. The tests are linked once with
// the emulation and once with CUDA's libraries, for a machine with a GPU.
#pragma once

#include "runtime/core/device.h"
#include "runtime/cuda/collectives.h"
#include "runtime/numeric/float16.h"
#include "runtime/numeric/reduce.h"
#include "tests/runtime/comm/collective_cases.h"

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

namespace fsdpc::testing {

using namespace fsdpc::runtime;

constexpr int64_t most = 300032; ///< elements per shard, more than a piece of
                                 ///< sums that groups hand on
enum class Kind { peer, nccl, deterministic };

// ---- defined once for each side of the table ----

/// Runs a test's ranks on the emulation, or on the first GPU.
/// `groupRanks` are those of a shard group; 0: all.
class Rank;
void onRanks(int ranks, Kind kind, const std::function<void(Rank &)> &body,
             int groupRanks = 0);
/// The kinds and numbers of ranks that are possible there.
std::vector<std::tuple<Kind, int>> kindsAndRanks();
/// Allocate and free memory that collectives use as a device's, and that the
/// host can read and write while it keeps what accessToMemory() returns.
CudaStatus allocateVisible(CudaApi &api, void *&memory, size_t bytes);
CudaStatus freeVisible(CudaApi &api, void *memory);
std::shared_ptr<void> accessToMemory();

// ---- the same for both ----

/// Returns how many elements differ from sums over all ranks, in rank order
/// and, with `add`, on top of before(i). valueAt(rank, i) is an addend, which
/// travels in `type`. NCCL sums in an order of its own, and in the type it is
/// given.
struct SumCheck {
  Kind kind;
  int ranks;
  WireType type;
  bool add;
  std::function<float(int, int64_t)> valueAt;
  std::function<float(int64_t)> before = [](int64_t i) {
    return valueOf(99, i);
  };
  int64_t wrong(const float *found, int64_t elements) const;
};

inline int64_t SumCheck::wrong(const float *found, int64_t elements) const {
  int64_t count = 0;
  for (int64_t i = 0; i < elements; ++i) {
    float sum = add ? before(i) : 0, largest = std::abs(sum);
    for (int rank = 0; rank < ranks; ++rank) {
      float value = valueAt(rank, i);
      if (type == WireType::bf16)
        value = widen(narrow<BFloat16>(value));
      else if (type == WireType::f16)
        value = widen(narrow<Float16>(value));
      sum = rank || add ? sum + value : value;
      largest += std::abs(value);
    }
    float unit = type == WireType::f32 ? 1e-6f : 2e-2f;
    float allowed = kind == Kind::nccl ? unit * largest : 0;
    count += !(std::abs(found[i] - sum) <= allowed);
  }
  return count;
}

inline void expectOk(CudaStatus status) { ASSERT_EQ(status, cudaOk); }

/// One rank with its streams, memory and channels.
class Rank {
public:
  /// `firstStep` is the limit of the first step; negative: that of later ones.
  Rank(CudaApi &api, Job &job, Kind kind, double watchdog,
       double firstStep = -1, int groupRanks = 0)
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
    resources.scratchBytes = resources.bytes / 4;
    resources.sentBytes = size_t(4096) * size_t(job.size);
    resources.groups = {groupRanks ? groupRanks : job.size, true};
    DeviceOptions options;
    options.deterministic = kind == Kind::deterministic;
    options.watchdogSeconds = options.joinSeconds = watchdog;
    options.firstStepSeconds = firstStep < 0 ? watchdog : firstStep;
    std::vector<std::string> notes;
    auto made = makeCollectives(api, job, options, resources, notes);
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

  std::shared_ptr<void> access; ///< the test reads and writes device memory
  CudaApi &api;
  Job &job;
  std::array<CudaStream, 3> streams; ///< compute, and one per channel
  CollectiveChannels channels;
  char *memory = nullptr, *whole = nullptr;
  float *shard = nullptr;
};

/// Runs `body` for each rank, on a thread of its own.
inline void onRanksOf(CudaApi &api, int ranks, Kind kind,
                      const std::function<void(Rank &)> &body,
                      double watchdog = 0, double firstStep = -1,
                      int groupRanks = 0) {
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Rank own(api, *jobs[size_t(rank)], kind, watchdog, firstStep, groupRanks);
      body(own);
    });
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace fsdpc::testing

// Collectives of GPUs on the emulation. Every kind is compared with plain sums,
// with and without capture. And the watchdog ends a job whose collectives do
// not end, with one line that names the place.
#include "runtime/cuda/collective_channel.h"
#include "runtime/cuda/collectives.h"
#include "runtime/emulation/emulation.h"
#include "tests/runtime/collective_cases.h"

#include <functional>
#include <gtest/gtest.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

constexpr int64_t most = 70016; // elements per shard
enum class Kind { peer, nccl, deterministic };

void expectOk(CudaStatus status) { ASSERT_EQ(status, cudaOk); }

// One rank with its streams, memory and channels.
class Rank {
public:
  Rank(CudaApi &api, Job &job, Kind kind, double watchdog)
      : api(api), job(job) {
    expectOk(api.selectDevice(0));
    job.sharesProcess = kind == Kind::peer;
    CollectiveResources resources;
    for (CudaStream *stream :
         {&resources.compute, &resources.gather, &resources.reduce})
      expectOk(api.createStream(*stream, true));
    streams = {resources.compute, resources.gather, resources.reduce};
    resources.bytes = size_t(most) * size_t(job.size) * 16;
    expectOk(api.allocateDevice(resources.memory, resources.bytes));
    memory = static_cast<char *>(resources.memory);
    whole = memory;
    shard = reinterpret_cast<float *>(memory + resources.bytes / 2);
    resources.scratch = memory + resources.bytes / 4 * 3;
    DeviceOptions options;
    options.deterministic = kind == Kind::deterministic;
    options.watchdogSeconds = watchdog;
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
    expectOk(api.freeDevice(memory));
  }

  void synchronize(Channel channel) {
    expectOk(api.synchronizeStream(streams[channel + 1]));
  }

  emulation::DeviceAccess access; // the test reads and writes device memory
  CudaApi &api;
  Job &job;
  std::array<CudaStream, 3> streams; // compute, and one per channel
  CollectiveChannels channels;
  char *memory = nullptr, *whole = nullptr;
  float *shard = nullptr;
};

// Runs `body` for each rank, on a thread of its own.
void onRanks(int ranks, Kind kind, const std::function<void(Rank &)> &body,
             const emulation::Settings &settings = {}, double watchdog = 0) {
  emulation::Emulation api(settings);
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Rank own(api, *jobs[size_t(rank)], kind, watchdog);
      body(own);
    });
  for (std::thread &thread : threads)
    thread.join();
}

class DeviceCollectives
    : public ::testing::TestWithParam<std::tuple<Kind, int>> {
protected:
  Kind kind = std::get<0>(GetParam());
  int ranks = std::get<1>(GetParam());
};

// Groups of every size that divides the ranks; each gathers its own shards.
TEST_P(DeviceCollectives, gatherInGroups) {
  onRanks(ranks, kind, [&](Rank &own) {
    Collectives &channel = *own.channels[gatherChannel];
    constexpr size_t bytes = 4096;
    auto value = [](int rank, size_t i) { return char(rank * 7 + int(i)); };
    for (int group = 1; group <= ranks; ++group) {
      if (ranks % group)
        continue;
      std::memset(own.whole, 0x55, bytes * size_t(ranks));
      auto *from = reinterpret_cast<char *>(own.shard);
      for (size_t i = 0; i < bytes; ++i)
        from[i] = value(own.job.rank, i);
      channel.announce("gather_secondary", "h.0");
      channel.gatherInGroup(from, own.whole, bytes, group);
      own.synchronize(gatherChannel);
      int first = own.job.rank / group * group;
      for (size_t i = 0; i < bytes * size_t(ranks); ++i) {
        int member = int(i / bytes);
        EXPECT_EQ(own.whole[i], member < group
                                    ? value(first + member, i % bytes)
                                    : char(0x55))
            << i << " in groups of " << group;
      }
      own.job.channel[controlChannel]->barrier();
    }
  });
}

// Small, page-sized and large shards, in place and not.
TEST_P(DeviceCollectives, gatherEveryShard) {
  onRanks(ranks, kind, [&](Rank &own) {
    Collectives &channel = *own.channels[gatherChannel];
    for (size_t bytes : {size_t(4), size_t(4096), size_t(200000)})
      for (bool inPlace : {false, true}) {
        char *place = own.whole + size_t(own.job.rank) * bytes;
        char *from = inPlace ? place : reinterpret_cast<char *>(own.shard);
        std::memset(own.whole, 0x55, bytes * size_t(ranks));
        for (size_t i = 0; i < bytes; ++i)
          from[i] = char(i * 31 + size_t(own.job.rank) * 7 + i / 4096);
        channel.announce("all_gather", "h.0");
        channel.allGather(from, own.whole, bytes);
        // The source may be overwritten as soon as the stream gets there.
        if (!inPlace)
          expectOk(own.api.fill(from, 0x77, bytes, own.streams[1]));
        own.synchronize(gatherChannel);
        for (size_t i = 0; i < bytes * size_t(ranks); ++i)
          EXPECT_EQ(own.whole[i],
                    char(i % bytes * 31 + i / bytes * 7 + i % bytes / 4096))
              << i;
        own.job.channel[controlChannel]->barrier();
      }
  });
}

// Exact in rank order, except with NCCL's own sums.
TEST_P(DeviceCollectives, reduceInRankOrder) {
  onRanks(ranks, kind, [&](Rank &own) {
    Collectives &channel = *own.channels[reduceChannel];
    for (int64_t elements : {int64_t(32), most - 32})
      for (WireType type : {WireType::f32, WireType::bf16})
        for (bool add : {false, true}) {
          auto at = [&](int rank, int64_t i) {
            float value = valueOf(rank, i);
            return type == WireType::f32 ? value
                                         : widen(narrow<BFloat16>(value));
          };
          int64_t all = elements * ranks, first = own.job.rank * elements;
          for (int64_t i = 0; i < all; ++i)
            if (type == WireType::f32)
              reinterpret_cast<float *>(own.whole)[i] = at(own.job.rank, i);
            else
              reinterpret_cast<BFloat16 *>(own.whole)[i] =
                  narrow<BFloat16>(valueOf(own.job.rank, i));
          for (int64_t i = 0; i < elements; ++i)
            own.shard[i] = valueOf(99, i);
          channel.announce("reduce_scatter", "h.1");
          channel.reduceScatter({own.whole, type, elements, own.shard, add});
          expectOk(
              own.api.fill(own.whole, 0x77, size_t(all) * 2, own.streams[2]));
          own.synchronize(reduceChannel);
          int64_t wrong = 0;
          for (int64_t i = 0; i < elements; ++i) {
            float sum = add ? valueOf(99, i) : 0, largest = std::abs(sum);
            for (int rank = 0; rank < ranks; ++rank) {
              float value = at(rank, first + i);
              sum = rank || add ? sum + value : value;
              largest += std::abs(value);
            }
            // NCCL sums in an order of its own, and in the type it is given.
            float unit = type == WireType::f32 ? 1e-6f : 2e-2f;
            float allowed = kind == Kind::nccl ? unit * largest : 0;
            wrong += !(std::abs(own.shard[i] - sum) <= allowed);
          }
          EXPECT_EQ(wrong, 0) << elements << " elements";
          own.job.channel[controlChannel]->barrier();
        }
  });
}

// An f32 gradient whose result is written inside it.
TEST_P(DeviceCollectives, reduceInPlace) {
  onRanks(ranks, kind, [&](Rank &own) {
    auto *values = reinterpret_cast<float *>(own.whole);
    int64_t elements = 1024;
    for (int64_t i = 0; i < elements * ranks; ++i)
      values[i] = float(i + own.job.rank); // exact in every order
    float *shard = values + own.job.rank * elements;
    own.channels[reduceChannel]->reduceScatter(
        {values, WireType::f32, elements, shard, false});
    own.synchronize(reduceChannel);
    int64_t sumOfRanks = int64_t(ranks) * (ranks - 1) / 2;
    for (int64_t i = 0; i < elements; ++i)
      EXPECT_EQ(shard[i],
                float((own.job.rank * elements + i) * ranks + sumOfRanks));
  });
}

// Norms have the same bits on every rank, and those of the host.
TEST_P(DeviceCollectives, sumDoublesInRankOrder) {
  onRanks(ranks, kind, [&](Rank &own) {
    auto *values = reinterpret_cast<double *>(own.whole);
    int count = 1000;
    std::vector<double> expected(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i)
      values[i] = expected[size_t(i)] = double(valueOf(own.job.rank, i)) / 3;
    own.channels[reduceChannel]->allReduce(values, count);
    own.synchronize(reduceChannel);
    own.job.channel[controlChannel]->allReduce(expected.data(), count);
    for (int i = 0; i < count; ++i)
      EXPECT_EQ(values[i], expected[size_t(i)]) << i;
  });
}

// A replayed graph does the same as the captured calls.
TEST_P(DeviceCollectives, canBeCaptured) {
  onRanks(ranks, kind, [&](Rank &own) {
    Collectives &channel = *own.channels[reduceChannel];
    if (!channel.canCapture())
      return;
    auto *values = reinterpret_cast<float *>(own.whole);
    CudaGraph graph = nullptr;
    CudaStream stream = own.streams[2];
    expectOk(own.api.beginCapture(stream));
    channel.announce("reduce_scatter", "h.0");
    channel.reduceScatter({values, WireType::f32, 64, own.shard, true});
    expectOk(own.api.endCapture(stream, graph));
    for (int64_t i = 0; i < 64; ++i)
      own.shard[i] = 0;
    for (int64_t i = 0; i < 64 * ranks; ++i)
      values[i] = 1;
    for (int replay = 1; replay <= 3; ++replay) {
      channel.beginSection(replay);
      expectOk(own.api.launchGraph(graph, stream));
      own.synchronize(reduceChannel);
      for (int64_t i = 0; i < 64; ++i)
        EXPECT_EQ(own.shard[i], float(replay * ranks));
    }
    expectOk(own.api.destroyGraph(graph));
  });
}

// A bf16 gradient travels as bf16 if the sum widens it.
TEST_P(DeviceCollectives, sayWhatTravels) {
  onRanks(ranks, kind, [&](Rank &own) {
    Collectives &channel = *own.channels[reduceChannel];
    auto travels = [&](WireType gradient, WireType wire) {
      return channel.travels(gradient, wire);
    };
    EXPECT_EQ(travels(WireType::f32, WireType::bf16), WireType::bf16);
    EXPECT_EQ(travels(WireType::f32, WireType::f32), WireType::f32);
    EXPECT_EQ(travels(WireType::bf16, WireType::bf16), WireType::bf16);
    EXPECT_EQ(travels(WireType::bf16, WireType::f32),
              kind == Kind::nccl ? WireType::f32 : WireType::bf16);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DeviceCollectives,
    ::testing::Combine(::testing::Values(Kind::peer, Kind::nccl,
                                         Kind::deterministic),
                       ::testing::Values(2, 3, 4)));

// Runs steps of two collectives each until the fault strikes.
void train(Rank &own, bool graphs) {
  std::array<CudaGraph, 2> kept{};
  for (int64_t step = 0;; ++step) {
    for (Channel channel : {gatherChannel, reduceChannel}) {
      Collectives &collectives = *own.channels[channel];
      CudaStream stream = own.streams[channel + 1];
      collectives.beginSection(step);
      own.api.synchronizeStream(own.streams[0]);
      if (graphs && !kept[channel])
        own.api.beginCapture(stream);
      if (!kept[channel]) {
        bool gathers = channel == gatherChannel;
        collectives.announce(gathers ? "all_gather" : "reduce_scatter",
                             gathers ? "h.3" : "h.4");
        if (gathers)
          collectives.allGather(own.shard, own.whole, 4096);
        else
          collectives.reduceScatter(
              {own.whole, WireType::f32, 64, own.shard, false});
      }
      if (graphs && !kept[channel])
        own.api.endCapture(stream, kept[channel]);
      if (graphs)
        own.api.launchGraph(kept[channel], stream);
      own.api.synchronizeStream(stream);
    }
  }
}

emulation::Settings with(emulation::Fault::Kind kind, int64_t number,
                         int rank) {
  emulation::Settings settings;
  settings.fault = {kind, number, rank};
  return settings;
}

class WatchdogDeathTest : public ::testing::TestWithParam<bool> {
protected:
  WatchdogDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Rank 1 leaves out its fifth collective. Rank 0 waits in it and names it.
TEST_P(WatchdogDeathTest, namesTheCollectiveThatIsStuck) {
  bool graphs = GetParam();
  EXPECT_EXIT(
      onRanks(
          2, Kind::nccl, [&](Rank &own) { train(own, graphs); },
          with(emulation::Fault::silent, 5, 1), 1),
      ::testing::ExitedWithCode(3),
      "^error: rank 0, step 2, unit 'h.3': all_gather has not ended within 1 "
      "s; another rank has stopped or is slower than --watchdog allows\n$");
}

// An error that NCCL reports through the communicator's state, and no call
// returns.
TEST_P(WatchdogDeathTest, findsAsynchronousErrors) {
  bool graphs = GetParam();
  EXPECT_EXIT(
      onRanks(
          2, Kind::nccl, [&](Rank &own) { train(own, graphs); },
          with(emulation::Fault::nccl, 4, 0), 20),
      ::testing::ExitedWithCode(3),
      "^error: rank 0, step 1, unit 'h.4': reduce_scatter failed: [^\n]*\n$");
}

INSTANTIATE_TEST_SUITE_P(Graphs, WatchdogDeathTest, ::testing::Bool());

// Ranks as threads meet on the host, and one does not come.
TEST(WatchdogOfThreadsDeathTest, namesTheMeetingThatIsStuck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(onRanks(
                  2, Kind::peer,
                  [&](Rank &own) {
                    if (own.job.rank == 1)
                      std::this_thread::sleep_for(std::chrono::hours(1));
                    train(own, false);
                  },
                  {}, 1),
              ::testing::ExitedWithCode(3),
              "^error: rank 0, step 0, unit 'h.3': all_gather has not ended "
              "within 1 s");
}

// A rank never joins NCCL. The others must not wait forever.
TEST(WatchdogOfJoiningDeathTest, namesTheRankThatWaits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        emulation::Emulation api{emulation::Settings()};
        auto jobs = makeLocalJobs(2, 0);
        std::thread([&] {
          std::array<char, sizeof(CudaStatus) + sizeof(NcclId)> own{};
          std::array<char, 2 * own.size()> all;
          jobs[1]->channel[controlChannel]->allGather(own.data(), all.data(),
                                                      own.size());
        }).detach();
        Rank rank(api, *jobs[0], Kind::nccl, 1);
      },
      ::testing::ExitedWithCode(3),
      "^error: rank 0: NCCL did not connect all 2 ranks within --watchdog 1 s");
}

} // namespace

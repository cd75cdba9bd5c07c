// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tests of collectives on the emulation. And the watchdog ends a job whose
// collectives do not end, with one line that names the place.
#include "runtime/cuda/nccl_memory.h"
#include "runtime/emulation/emulation.h"
#include "runtime/support/exit_code.h"
#include "tests/runtime/cuda/device_collectives.h"

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace fsdpc::testing {

void onRanks(int ranks, Kind kind, const std::function<void(Rank &)> &body,
             int groupRanks) {
  emulation::Emulation api(emulation::readSettings());
  onRanksOf(api, ranks, kind, body, 0, -1, groupRanks);
}

std::vector<std::tuple<Kind, int>> kindsAndRanks() {
  std::vector<std::tuple<Kind, int>> all;
  for (Kind kind : {Kind::peer, Kind::nccl, Kind::deterministic})
    for (int ranks : {1, 2, 3, 4})
      all.emplace_back(kind, ranks);
  return all;
}

CudaStatus allocateVisible(CudaApi &api, void *&memory, size_t bytes) {
  return api.allocateDevice(memory, bytes);
}
CudaStatus freeVisible(CudaApi &api, void *memory) {
  return api.freeDevice(memory);
}
std::shared_ptr<void> accessToMemory() {
  return std::make_shared<emulation::DeviceAccess>();
}

} // namespace fsdpc::testing

namespace {

using namespace fsdpc::testing;

constexpr int machineFailed = int(ExitCode::machineFailed);

void onRanksWith(int ranks, Kind kind, const std::function<void(Rank &)> &body,
                 const emulation::Settings &settings, double watchdog,
                 double firstStep = -1, int groupRanks = 0) {
  emulation::Emulation api(settings);
  onRanksOf(api, ranks, kind, body, watchdog, firstStep, groupRanks);
}

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
              {own.whole, WireType::f32, 64, own.shard, false, true});
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
      onRanksWith(
          2, Kind::nccl, [&](Rank &own) { train(own, graphs); },
          with(emulation::Fault::silent, 5, 1), 1),
      ::testing::ExitedWithCode(machineFailed),
      "^error: rank 0, step 2, unit 'h.3': all_gather has not ended within 1 "
      "s; another rank has stopped or is slower than --watchdog allows\n$");
}

// An error that NCCL reports through the communicator's state, and no call
// returns.
TEST_P(WatchdogDeathTest, findsAsynchronousErrors) {
  bool graphs = GetParam();
  EXPECT_EXIT(
      onRanksWith(
          2, Kind::nccl, [&](Rank &own) { train(own, graphs); },
          with(emulation::Fault::nccl, 4, 0), 20),
      ::testing::ExitedWithCode(machineFailed),
      "^error: rank 0, step 1, unit 'h.4': reduce_scatter failed: [^\n]*\n$");
}

// The error is that of a communicator across groups: of rank 3's collectives
// the third is the first one there. All ranks end by the one line.
TEST_P(WatchdogDeathTest, watchesTheCommunicatorsOfGroups) {
  bool graphs = GetParam();
  EXPECT_EXIT(
      onRanksWith(
          4, Kind::nccl, [&](Rank &own) { train(own, graphs); },
          with(emulation::Fault::nccl, 3, 0), 20, -1, 2),
      ::testing::ExitedWithCode(machineFailed),
      "^error: rank 0, step 0, unit 'h.4': reduce_scatter failed: [^\n]*\n$");
}

// A rank is silent there. Rank 0 has its place in the other group, and waits.
TEST_P(WatchdogDeathTest, namesTheCollectiveOfGroupsThatIsStuck) {
  bool graphs = GetParam();
  EXPECT_EXIT(
      onRanksWith(
          4, Kind::nccl, [&](Rank &own) { train(own, graphs); },
          with(emulation::Fault::silent, 6, 2), 1, -1, 2),
      ::testing::ExitedWithCode(machineFailed),
      "^error: rank 0, step 1, unit 'h.4': reduce_scatter has not ended "
      "within 1 s; another rank has stopped or is slower than --watchdog "
      "allows\n$");
}

// The first step, which loads code, has a limit of its own.
TEST_P(WatchdogDeathTest, endsAFirstStepThatIsStuck) {
  bool graphs = GetParam();
  EXPECT_EXIT(
      onRanksWith(
          2, Kind::nccl, [&](Rank &own) { train(own, graphs); },
          with(emulation::Fault::silent, 1, 1), 60, 1),
      ::testing::ExitedWithCode(machineFailed),
      "^error: rank 0, step 0, unit 'h.3': all_gather has not ended within 1 "
      "s; another rank has stopped or is slower than --first-step-timeout "
      "allows\n$");
}

INSTANTIATE_TEST_SUITE_P(Graphs, WatchdogDeathTest, ::testing::Bool());

// Ranks as threads meet on the host, and one does not come.
TEST(WatchdogOfThreadsDeathTest, namesTheMeetingThatIsStuck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(onRanksWith(
                  2, Kind::peer,
                  [&](Rank &own) {
                    if (own.job.rank == 1)
                      std::this_thread::sleep_for(std::chrono::hours(1));
                    train(own, false);
                  },
                  {}, 1),
              ::testing::ExitedWithCode(machineFailed),
              "^error: rank 0, step 0, unit 'h.3': all_gather has not ended "
              "within 1 s");
}

// A rank joins, and does not split.
TEST(WatchdogOfJoiningDeathTest, namesTheRankThatWaitsForItsGroup) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        emulation::Emulation api{emulation::Settings()};
        auto jobs = makeLocalJobs(2, 0);
        std::thread([&] {
          (void)agreeOnNccl(api, *jobs[1], {}, {});
          struct {
            CudaStatus status;
            NcclId id;
          } own = {}, all[2];
          jobs[1]->channel[controlChannel]->allGather(&own, all, sizeof own);
          CudaCommunicator communicator = nullptr;
          api.initCommunicator(communicator, 1, 2, all[0].id, {});
        }).detach();
        Rank rank(api, *jobs[0], Kind::nccl, 1, -1, 1);
      },
      ::testing::ExitedWithCode(machineFailed),
      "^error: rank 0: NCCL did not connect all 2 ranks within --join-timeout "
      "1 s");
}

// A rank never joins NCCL. The others must not wait forever.
TEST(WatchdogOfJoiningDeathTest, namesTheRankThatWaits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        emulation::Emulation api{emulation::Settings()};
        auto jobs = makeLocalJobs(2, 0);
        std::thread([&] {
          (void)agreeOnNccl(api, *jobs[1], {}, {});
          std::array<char, sizeof(CudaStatus) + sizeof(NcclId)> own{};
          std::array<char, 2 * own.size()> all;
          jobs[1]->channel[controlChannel]->allGather(own.data(), all.data(),
                                                      own.size());
        }).detach();
        Rank rank(api, *jobs[0], Kind::nccl, 1);
      },
      ::testing::ExitedWithCode(machineFailed),
      "^error: rank 0: NCCL did not connect all 2 ranks within --join-timeout "
      "1 s");
}

} // namespace

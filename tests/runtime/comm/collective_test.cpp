// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives with ranks as threads. They are compared with plain sums, and the
// paths (shared buffers, windows, virtual nodes) with each other, to the bit.
// Also what the launchers' environment variables are understood to mean.
#include "runtime/comm/failure.h"
#include "runtime/comm/launch_environment.h"
#include "runtime/comm/nodes.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/comm/staged.h"
#include "runtime/numeric/float16.h"
#include "tests/runtime/comm/collective_cases.h"
#include "tests/runtime/comm/typed_cases.h"

#include <atomic>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

float travelled(const ReduceCase &c, float value) {
  if (c.type == WireType::bf16 || c.wire == WireType::bf16)
    value = widen(narrow<BFloat16>(value));
  return value;
}

// Windows without MPI: messages and groups are those of ranks as threads.
class ThreadWindows : public WindowCommunicator {
public:
  ThreadWindows(std::unique_ptr<Communicator> threads,
                std::vector<char *> windows, Staging staging)
      : WindowCommunicator(threads->rank(), std::move(windows), staging),
        threads(std::move(threads)) {}
  void doTransfer(std::span<const Outgoing> sends,
                  std::span<const Incoming> receives) override {
    threads->transfer(sends, receives);
  }
  std::unique_ptr<Communicator> split(int color) override {
    return threads->split(color);
  }

private:
  std::unique_ptr<Communicator> threads;
};

// Jobs over windows such as MPI ranks of one node share, here in plain memory.
std::vector<std::unique_ptr<Job>>
makeWindowJobs(int ranks, std::vector<std::vector<char>> &memory) {
  std::vector<std::unique_ptr<Job>> jobs = makeLocalJobs(ranks, 0);
  for (int channel = 0; channel < channels; ++channel) {
    Staging staging = Staging::of(Channel(channel), ranks);
    std::vector<char *> windows;
    for (int rank = 0; rank < ranks; ++rank) {
      memory.emplace_back(staging.windowBytes() + 64);
      auto address = reinterpret_cast<uintptr_t>(memory.back().data());
      windows.push_back(reinterpret_cast<char *>((address + 63) / 64 * 64));
    }
    for (int rank = 0; rank < ranks; ++rank)
      jobs[rank]->channel[channel] = std::make_unique<ThreadWindows>(
          std::move(jobs[rank]->channel[channel]), windows, staging);
  }
  return jobs;
}

class Collectives : public ::testing::TestWithParam<int> {};

// Checks the shards of all cases, of which `groupRanks` ranks hold one part
// each: every sum over all ranks equals the plain sum in rank order, from the
// shard on if it continues, and padding counts as zero.
void expectSums(const std::vector<ReduceCase> &cases, const std::string &shards,
                int place, int groupRanks, int ranks) {
  const char *at = shards.data();
  for (const ReduceCase &c : cases)
    for (int64_t i = 0; i < shardOf(c, groupRanks); ++i, at += 4) {
      int64_t element = place * shardOf(c, groupRanks) + i;
      float expected = c.add ? valueOf(99, i) : 0, got;
      for (int peer = 0; peer < ranks && element < c.elements; ++peer) {
        float value = travelled(c, valueOf(peer, element));
        expected = peer || c.add ? expected + value : value;
      }
      memcpy(&got, at, 4);
      ASSERT_EQ(got, expected) << "place " << place << " element " << element
                               << " of " << c.elements;
    }
}

// Against sums in rank order by a plain loop.
TEST_P(Collectives, reduceScatterSumsInRankOrder) {
  int ranks = GetParam();
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::string> results = runJobs(jobs);
  for (int rank = 0; rank < ranks; ++rank)
    expectSums(reduceCases(), results[size_t(rank)], rank, ranks, ranks);
}

// Every rank has the owners' sums in the end, which are in rank order.
TEST_P(Collectives, ownersSumInRankOrderAndShare) {
  int ranks = GetParam();
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::string> results = runJobs(jobs, runOwnedCases);
  std::string expected;
  auto lists = ownedLists();
  for (WireType wire : {WireType::f32, WireType::bf16})
    for (bool add : {false, true})
      for (const std::vector<ReduceCase> &list : lists)
        for (ReduceCase c : list) {
          c.wire = wire;
          for (int64_t i = 0; i < c.elements; ++i) {
            float sum = valueOf(99, i);
            for (int peer = 0; peer < ranks; ++peer) {
              float value = travelled(c, valueOf(peer, i));
              sum = peer || add ? sum + value : value;
            }
            expected.append(reinterpret_cast<const char *>(&sum), 4);
          }
        }
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_TRUE(results[size_t(rank)] == expected) << "rank " << rank;
}

// Values that are reduced to owners cross once, and shared ones once per rank.
TEST(Owned, countsWhatIsSent) {
  auto jobs = makeLocalJobs(3, 0);
  runJobs(jobs, [](Job &job) {
    std::vector<float> values(100);
    job.channel[reduceChannel]->reduceToOwners(
        std::vector<OwnedGradient>{
            {values.data(), WireType::f32, 40, 1, values.data()}},
        WireType::bf16, false);
    job.channel[gatherChannel]->shareOwned(
        std::vector<OwnedValues>{{values.data(), 40, 1}});
    return std::string();
  });
  for (int rank = 0; rank < 3; ++rank) {
    bool owns = rank == 1;
    EXPECT_EQ(jobs[size_t(rank)]->channel[reduceChannel]->sentBytes(),
              owns ? 0u : 80u);
    EXPECT_EQ(jobs[size_t(rank)]->channel[gatherChannel]->sentBytes(),
              owns ? 80u : 0u);
  }
}

// Groups hand their sums on in order, so all ranks count in rank order, and
// each group has the whole sum.
TEST_P(Collectives, groupsSumInRankOrderOfAll) {
  int ranks = GetParam();
  for (int groupRanks = 1; groupRanks <= ranks; ++groupRanks) {
    if (ranks % groupRanks)
      continue;
    auto jobs = makeLocalJobs(ranks, 0);
    auto results = runJobs(jobs, [&](Job &job) {
      return runHybridCases(*job.channel[reduceChannel], groupRanks);
    });
    for (int rank = 0; rank < ranks; ++rank)
      expectSums(hybridCases(), results[size_t(rank)], rank % groupRanks,
                 groupRanks, ranks);
  }
}

// A group that does not divide the ranks is refused, with both numbers, before
// any rank waits for another.
TEST(Groups, mustDivideTheRanks) {
  auto jobs = makeLocalJobs(4, 0);
  for (int groupRanks : {3, 0, -1, 8}) {
    auto made = ShardGroups::make(*jobs[0]->channel[gatherChannel], groupRanks);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().message,
              "a shard group of " + std::to_string(groupRanks) +
                  " ranks does not divide the job's 4 ranks");
  }
}

std::string runAllCases(Job &job) { return runCases(job) + runGroupCases(job); }

// The path for several nodes, for every size of node.
TEST_P(Collectives, virtualNodesChangeNoBit) {
  int ranks = GetParam();
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::string> expected = runJobs(jobs, runAllCases);
  for (int perNode = 1; perNode < ranks; ++perNode) {
    auto nodes = makeLocalJobs(ranks, perNode);
    EXPECT_EQ(nodes[0]->ranksOnNode, perNode);
    EXPECT_TRUE(runJobs(nodes, runAllCases) == expected)
        << perNode << " ranks per node";
  }
}

// Of each shard that is gathered one copy goes to each other node. Of gradients
// one goes to each rank there, or sums go from node to node and back, whichever
// is less. If nodes sum first, one goes to each other node.
TEST(Nodes, aByteGoesIntoANodeOnce) {
  auto sentOf = [](int ranks, int perNode, bool nodesFirst = false) {
    auto jobs = makeLocalJobs(ranks, perNode);
    runJobs(jobs, [&](Job &job) {
      std::vector<float> values(size_t(10 * ranks)), sums(10);
      job.channel[gatherChannel]->allGather(values.data() + 10 * job.rank,
                                            values.data(), 40);
      if (nodesFirst)
        job.channel[reduceChannel]->sumNodesFirst();
      job.channel[reduceChannel]->reduceScatter({values.data(), WireType::f32,
                                                 WireType::f32, 10 * ranks, 10,
                                                 sums.data(), false});
      return std::string();
    });
    std::vector<std::pair<int, int>> sent;
    for (auto &job : jobs) {
      EXPECT_EQ(job->channel[gatherChannel]->sentBytes(),
                uint64_t(ranks - 1) * 40);
      sent.emplace_back(job->channel[gatherChannel]->sentToNodes() / 40,
                        job->channel[reduceChannel]->sentToNodes() / 40);
    }
    return sent;
  };
  using Sent = std::vector<std::pair<int, int>>;
  EXPECT_EQ(sentOf(4, 2), (Sent{{1, 2}, {1, 2}, {1, 2}, {1, 2}}));
  EXPECT_EQ(sentOf(4, 2, true), (Sent{{1, 1}, {1, 1}, {1, 1}, {1, 1}}));
  EXPECT_EQ(sentOf(6, 2),
            (Sent{{2, 3}, {2, 3}, {2, 3}, {2, 3}, {2, 2}, {2, 2}}));
  EXPECT_EQ(sentOf(6, 2, true),
            (Sent{{2, 2}, {2, 2}, {2, 2}, {2, 2}, {2, 2}, {2, 2}}));
  EXPECT_EQ(sentOf(3, 2), (Sent{{1, 1}, {1, 1}, {2, 2}}));
  EXPECT_EQ(sentOf(3, 2, true), sentOf(3, 2));
}

// 1 + 2^-24 rounds to 1, so the order shows: rank by rank the small values get
// lost one by one, and the second node's sum of them does not.
TEST(Nodes, mayBeSummedFirst) {
  constexpr int part = 300000; // several pieces
  for (bool nodesFirst : {false, true})
    for (bool add : {false, true}) {
      auto jobs = makeLocalJobs(4, 2);
      runJobs(jobs, [&](Job &job) {
        float value = job.rank == 0 ? 1.f : job.rank == 1 ? 0.f : 0x1p-24f;
        std::vector<float> values(4 * part, value), sums(part, 0.f);
        if (nodesFirst)
          job.channel[reduceChannel]->sumNodesFirst();
        job.channel[reduceChannel]->reduceScatter({values.data(), WireType::f32,
                                                   WireType::f32, 4 * part,
                                                   part, sums.data(), add});
        EXPECT_EQ(sums,
                  std::vector<float>(part, nodesFirst ? 1 + 0x1p-23f : 1.f));
        return std::string();
      });
    }
}

// Nodes of two and three hand on sums, through chains of three nodes and of
// two.
TEST(Nodes, handOnSumsWithTheSameBits) {
  auto flat = makeLocalJobs(6, 0);
  std::vector<std::string> expected = runJobs(flat, runCases);
  for (int perNode : {2, 3}) {
    auto jobs = makeLocalJobs(6, perNode);
    EXPECT_TRUE(runJobs(jobs, runCases) == expected) << perNode;
  }
}

// Only nodes with equally many ranks, one after the other, can hand on.
TEST(Nodes, theGridIsDeepWhereNodesAreAlike) {
  auto depth = [](std::vector<int> nodes) {
    NodeGrid grid = gridOf(std::span<const int>(nodes));
    return std::pair(grid.nodes, grid.ranks);
  };
  EXPECT_EQ(depth({0}), std::pair(1, 1));
  EXPECT_EQ(depth({3, 3}), std::pair(1, 2));
  EXPECT_EQ(depth({0, 0, 1, 1, 2, 2}), std::pair(3, 2));
  EXPECT_EQ(depth({0, 1}), std::pair(2, 1));
  EXPECT_FALSE(gridOf(std::span<const int>(std::vector{0, 0, 1})).isDeep());
  EXPECT_FALSE(gridOf(std::span<const int>(std::vector{0, 1, 0, 1})).isDeep());
  EXPECT_FALSE(
      gridOf(std::span<const int>(std::vector{0, 0, 1, 1, 1, 1})).isDeep());
  EXPECT_FALSE(
      gridOf(std::span<const int>(std::vector{0, 0, 1, 1, 0, 0})).isDeep());
}

// The path of MPI ranks on one node, without MPI.
TEST_P(Collectives, windowsChangeNoBit) {
  int ranks = GetParam();
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::string> expected = runJobs(jobs, runAllCases);
  std::vector<std::vector<char>> memory;
  auto windows = makeWindowJobs(ranks, memory);
  EXPECT_TRUE(runJobs(windows, runAllCases) == expected);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4));

// The collectives on typed values, on every way for ranks as threads.
class TypedCollectives : public ::testing::TestWithParam<int> {};

TEST_P(TypedCollectives, equalPlainLoops) {
  int ranks = GetParam();
  std::vector<std::string> none(static_cast<size_t>(ranks));
  auto jobs = makeLocalJobs(ranks, 0);
  EXPECT_EQ(runJobs(jobs, runTypedCases), none);
  auto nodes = makeLocalJobs(ranks, ranks > 4 ? 3 : 1);
  EXPECT_EQ(runJobs(nodes, runTypedCases), none);
  std::vector<std::vector<char>> memory;
  auto windows = makeWindowJobs(ranks, memory);
  EXPECT_EQ(runJobs(windows, runTypedCases), none);
}

INSTANTIATE_TEST_SUITE_P(Ranks, TypedCollectives,
                         ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8));

// The bytes that a rank touches of its peers' windows stay within the bound.
TEST(Communication, takesAtMostEightMebibytesAChannel) {
  for (int ranks : {2, 3, 4, 8, 64, 1024})
    for (int channel = 0; channel < channels; ++channel) {
      Staging staging = Staging::of(Channel(channel), ranks);
      EXPECT_LE(staging.touchedBytes(ranks), (8 << 20) + ranks * 3 * 8192)
          << ranks << " ranks, channel " << channel;
    }
  EXPECT_EQ(communicationBytes(4, 0, "local"), 0);
  EXPECT_EQ(communicationBytes(1, 0, "mpi"), 0);
  // Over TCP links keep a message each, and over nodes hand on what they
  // gather.
  EXPECT_EQ(communicationBytes(2, 0, "tcp"),
            Staging::of(gatherChannel, 2).touchedBytes(2) +
                Staging::of(reduceChannel, 2).touchedBytes(2) + 3 * 8192);
  // More than eight ranks collect small pieces of all of them.
  EXPECT_EQ(communicationBytes(16, 0, "tcp"),
            Staging::of(gatherChannel, 16).touchedBytes(16) +
                Staging::of(reduceChannel, 16).touchedBytes(16) + 3 * 8 * 8192 +
                16 * 4096);
  EXPECT_EQ(communicationBytes(4, 2, "local"), (2 << 20) + (768 << 10));
  EXPECT_EQ(communicationBytes(4, 2, "mpi"),
            (2 << 20) + (768 << 10) + 2 * 4096 +
                Staging::of(gatherChannel, 2).touchedBytes(2) +
                Staging::of(reduceChannel, 2).touchedBytes(2));
  // Three pieces for the sums of groups, and the group's own staging.
  EXPECT_EQ(groupCommunicationBytes(1, 1, 0, "mpi", true), 0);
  EXPECT_EQ(groupCommunicationBytes(4, 2, 0, "local", true), 768 << 10);
  EXPECT_EQ(groupCommunicationBytes(4, 4, 0, "local", true), 0);
  // Over TCP too the ranks of a group share windows, on the channels that they
  // use.
  int64_t gathers = Staging::of(gatherChannel, 2).touchedBytes(2) + 4096,
          sums = Staging::of(reduceChannel, 2).touchedBytes(2) + 4096;
  for (const char *transport : {"tcp", "mpi"}) {
    EXPECT_EQ(groupCommunicationBytes(4, 2, 0, transport, true),
              (768 << 10) + gathers + sums);
    EXPECT_EQ(groupCommunicationBytes(4, 2, 0, transport, false), gathers);
  }
  EXPECT_EQ(groupCommunicationBytes(4, 4, 2, "mpi", true), 2 << 20);
  // Groups that only gather hand on no sums, and send from where they are.
  EXPECT_EQ(groupCommunicationBytes(4, 2, 0, "local", false), 0);
  EXPECT_EQ(groupCommunicationBytes(4, 4, 2, "mpi", false), 0);
}

// A thread may fail while another sets how the job ends; the process ends by
// one of the functions, whole. The sanitizers look on.
TEST(Failure, mayMeetANewAbort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int i = 0; i < 3; ++i)
    EXPECT_EXIT(
        {
          std::atomic<bool> begun{false};
          std::thread setter([&] {
            for (int j = 0;; ++j) {
              setAbort(
                  [text = std::string(size_t(j % 90), 'x')](ExitCode code) {
                    _exit(int(code) + 4 + (text.size() > 90));
                  });
              begun = true;
            }
          });
          while (!begun)
            std::this_thread::yield();
          fail(runError("enough"));
        },
        ::testing::ExitedWithCode(7), "error: enough");
}

// As the kernels round.
TEST(Rounding, isToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(narrow<BFloat16>(1.00390625f).bits, 0x3f80); // halfway, to even
  EXPECT_EQ(narrow<BFloat16>(1.01171875f).bits, 0x3f82); // halfway, to even
  EXPECT_EQ(narrow<BFloat16>(3.4e38f).bits, 0x7f80);     // past the largest
  EXPECT_TRUE(std::isnan(widen(narrow<BFloat16>(NAN))));
}

// The value that an f16's bits mean, by its definition.
double meaningOf(Float16 half) {
  int exponent = half.bits >> 10 & 31, mantissa = half.bits & 1023;
  double value = exponent ? std::ldexp(1024 + mantissa, exponent - 25)
                          : std::ldexp(mantissa, -24);
  return half.bits >> 15 ? -value : value;
}

// Widening is exact, rounding undoes it, and halfway between two neighbours it
// goes to the even one; past the largest to infinity.
TEST(Rounding, ofHalvesIsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half = {uint16_t(bits)};
    if ((bits & 0x7fff) > 0x7c00) {
      EXPECT_TRUE(std::isnan(widen(half)));
      EXPECT_GT(narrow<Float16>(widen(half)).bits & 0x7fff, 0x7c00);
      continue;
    }
    EXPECT_EQ(narrow<Float16>(widen(half)).bits, bits);
    if ((bits & 0x7fff) == 0x7c00)
      continue;
    EXPECT_EQ(widen(half), meaningOf(half));
    if ((bits & 0x7fff) == 0x7bff)
      continue;
    Float16 next = {uint16_t(bits + 1)};
    float middle = float((meaningOf(half) + meaningOf(next)) / 2);
    EXPECT_EQ(narrow<Float16>(middle).bits, bits & 1 ? next.bits : bits);
    EXPECT_EQ(
        narrow<Float16>(std::nextafter(middle, float(meaningOf(half)))).bits,
        bits);
    EXPECT_EQ(
        narrow<Float16>(std::nextafter(middle, float(meaningOf(next)))).bits,
        next.bits);
  }
  EXPECT_EQ(narrow<Float16>(65519.9f).bits, 0x7bff);
  EXPECT_EQ(narrow<Float16>(65520.0f).bits, 0x7c00);
  EXPECT_EQ(narrow<Float16>(-3.4e38f).bits, 0xfc00);
  EXPECT_EQ(narrow<Float16>(-1e-9f).bits, 0x8000);
}

// Sets variables for one test and unsets them after it.
class Launch : public ::testing::Test {
protected:
  void set(const char *name, const char *value) {
    setenv(name, value, 1);
    names.push_back(name);
  }
  void TearDown() override {
    for (const char *name : names)
      unsetenv(name);
  }
  std::vector<const char *> names;
};

// Without variables a process is alone.
TEST_F(Launch, ofNothingIsOneRank) {
  LaunchEnvironment environment = *readLaunchEnvironment();
  EXPECT_EQ(environment.ranks, 1);
  EXPECT_EQ(environment.launcher, "none");
  EXPECT_FALSE(environment.mpi);
}

// torchrun's ranks cannot be joined by MPI.
TEST_F(Launch, byTorchrunIsNamed) {
  set("WORLD_SIZE", "4");
  set("RANK", "2");
  LaunchEnvironment environment = *readLaunchEnvironment();
  EXPECT_EQ(environment.ranks, 4);
  EXPECT_EQ(environment.launcher, "torchrun");
  EXPECT_EQ(environment.variables, "WORLD_SIZE=4, RANK=2");
  EXPECT_FALSE(environment.mpi);
}

// A shell in an allocation (a size without a rank) announces no ranks.
TEST_F(Launch, bySlurmNeedsARank) {
  set("SLURM_NTASKS", "8");
  EXPECT_EQ(readLaunchEnvironment()->ranks, 1);
  set("SLURM_PROCID", "0");
  LaunchEnvironment environment = *readLaunchEnvironment();
  EXPECT_EQ(environment.ranks, 8);
  EXPECT_EQ(environment.launcher, "srun");
}

// A place on the machine that cannot be is an error and not a guess.
TEST_F(Launch, byTorchrunPlacesMustFit) {
  struct {
    const char *rank, *world, *local, *localWorld, *message;
  } cases[] = {
      {"5", "2", "0", "1", "RANK=5 does not match WORLD_SIZE=2"},
      {"-1", "2", "0", "1", "RANK='-1' is not a whole number from 0"},
      {"0", "-2", "0", "1", "WORLD_SIZE='-2' is not a whole number from 1"},
      {"1", "2", "1", "1", "LOCAL_RANK=1 does not match LOCAL_WORLD_SIZE=1"},
      {"1", "2", "1", "4", "LOCAL_WORLD_SIZE=4 does not match WORLD_SIZE=2"},
      {"1", "4", "3", "4", "LOCAL_RANK=3 does not match WORLD_SIZE=4, RANK=1"},
      {"1", "2", "-1", "2", "LOCAL_RANK='-1' is not a whole number from 0"},
      {"1", "2", "1", "0", "LOCAL_WORLD_SIZE='0' is not a whole number from 1"},
  };
  set("MASTER_ADDR", "localhost");
  set("MASTER_PORT", "29500");
  for (auto &c : cases) {
    set("RANK", c.rank);
    set("WORLD_SIZE", c.world);
    set("LOCAL_RANK", c.local);
    set("LOCAL_WORLD_SIZE", c.localWorld);
    auto launched = readLaunchEnvironment();
    ASSERT_FALSE(launched) << c.message;
    EXPECT_THAT(launched.error().message, ::testing::HasSubstr(c.message));
  }
}

// Slurm's variables are checked alike.
TEST_F(Launch, bySlurmPlacesMustFit) {
  set("SLURM_STEP_NUM_TASKS", "2");
  set("SLURM_STEP_NODELIST", "localhost");
  set("SLURM_JOB_ID", "7");
  set("SLURM_STEP_ID", "0");
  struct {
    const char *rank, *local, *message;
  } cases[] = {
      {"2", "0", "SLURM_PROCID=2 does not match SLURM_STEP_NUM_TASKS=2"},
      {"-1", "0", "SLURM_PROCID='-1' is not a whole number"},
      {"1", "2", "SLURM_LOCALID=2 does not match"},
      {"1", "-1", "SLURM_LOCALID='-1' is not a whole number"},
  };
  for (auto &c : cases) {
    set("SLURM_PROCID", c.rank);
    set("SLURM_LOCALID", c.local);
    auto launched = readLaunchEnvironment();
    ASSERT_FALSE(launched) << c.message;
    EXPECT_THAT(launched.error().message, ::testing::HasSubstr(c.message));
  }
}

// A secret that can be guessed is refused, and not printed.
TEST_F(Launch, needsALongSecret) {
  set("WORLD_SIZE", "2");
  set("RANK", "0");
  set("FSDPC_SECRET", "tiger");
  auto launched = readLaunchEnvironment();
  ASSERT_FALSE(launched);
  EXPECT_THAT(launched.error().message,
              ::testing::HasSubstr(
                  "FSDPC_SECRET has 5 characters and needs at least 16"));
  EXPECT_THAT(launched.error().message,
              ::testing::Not(::testing::HasSubstr("tiger")));
}

// Hydra's descriptor counts where no launcher has said more.
TEST_F(Launch, byPmiHasADescriptor) {
  set("PMI_FD", "5");
  set("PMI_SIZE", "4");
  set("PMI_RANK", "3");
  set("MPI_LOCALRANKID", "1");
  set("MPI_LOCALNRANKS", "2");
  LaunchEnvironment environment = *readLaunchEnvironment();
  EXPECT_EQ(environment.launcher, "mpiexec");
  EXPECT_EQ(environment.variables, "PMI_SIZE=4, PMI_RANK=3");
  EXPECT_EQ(environment.pmi, 5);
  EXPECT_EQ(environment.rankOnHost, 1);
  EXPECT_EQ(environment.missing, "");
  set("OMPI_COMM_WORLD_SIZE", "4");
  set("OMPI_COMM_WORLD_RANK", "3");
  environment = *readLaunchEnvironment();
  EXPECT_EQ(environment.launcher, "mpirun");
  EXPECT_EQ(environment.pmi, -1);
}

// mpirun's ranks can.
TEST_F(Launch, byMpirunCanBeJoined) {
  set("OMPI_COMM_WORLD_SIZE", "2");
  set("OMPI_COMM_WORLD_RANK", "1");
  LaunchEnvironment environment = *readLaunchEnvironment();
  EXPECT_EQ(environment.launcher, "mpirun");
  EXPECT_TRUE(environment.mpi);
  EXPECT_EQ(environment.ranks, 2);
}

} // namespace

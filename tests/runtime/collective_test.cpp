// Collectives with ranks as threads. They are compared with plain sums, and the
// paths (shared buffers, windows, virtual nodes) with each other, to the bit.
// Also what the launchers' environment variables are understood to mean.
#include "runtime/comm/launch_environment.h"
#include "runtime/comm/reduce.h"
#include "runtime/comm/staged.h"
#include "tests/runtime/collective_cases.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

float travelled(const ReduceCase &c, float value) {
  if (c.type == WireType::bf16 || c.wire == WireType::bf16)
    value = widen(narrow<BFloat16>(value));
  return value;
}

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
      jobs[rank]->channel[channel] =
          std::make_unique<WindowCommunicator>(rank, windows, staging);
  }
  return jobs;
}

class Collectives : public ::testing::TestWithParam<int> {};

// Every sum equals the plain sum in rank order, and every padding element is
// zero.
TEST_P(Collectives, reduceScatterSumsInRankOrder) {
  int ranks = GetParam();
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::string> results = runJobs(jobs);
  for (int rank = 0; rank < ranks; ++rank) {
    const char *at = results[rank].data();
    for (const ReduceCase &c : reduceCases())
      for (int64_t i = 0; i < shardOf(c, ranks); ++i, at += 4) {
        int64_t element = rank * shardOf(c, ranks) + i;
        float sum = 0;
        for (int peer = 0; peer < ranks && element < c.elements; ++peer) {
          float value = travelled(c, valueOf(peer, element));
          sum = peer ? sum + value : value;
        }
        float expected = c.add ? valueOf(99, i) + sum : sum, got;
        memcpy(&got, at, 4);
        ASSERT_EQ(got, expected) << "rank " << rank << " element " << element
                                 << " of " << c.elements;
      }
  }
}

// The path for several nodes, for every size of node.
TEST_P(Collectives, virtualNodesChangeNoBit) {
  int ranks = GetParam();
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::string> expected = runJobs(jobs);
  for (int perNode = 1; perNode < ranks; ++perNode) {
    auto nodes = makeLocalJobs(ranks, perNode);
    EXPECT_EQ(nodes[0]->ranksOnNode, perNode);
    EXPECT_TRUE(runJobs(nodes) == expected) << perNode << " ranks per node";
  }
}

// The path of MPI ranks on one node, without MPI.
TEST_P(Collectives, windowsChangeNoBit) {
  int ranks = GetParam();
  auto jobs = makeLocalJobs(ranks, 0);
  std::vector<std::string> expected = runJobs(jobs);
  std::vector<std::vector<char>> memory;
  auto windows = makeWindowJobs(ranks, memory);
  EXPECT_TRUE(runJobs(windows) == expected);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4));

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
}

// As the kernels round.
TEST(Rounding, isToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(narrow<BFloat16>(1.00390625f).bits, 0x3f80); // halfway, to even
  EXPECT_EQ(narrow<BFloat16>(1.01171875f).bits, 0x3f82); // halfway, to even
  EXPECT_EQ(narrow<BFloat16>(3.4e38f).bits, 0x7f80);     // past the largest
  EXPECT_TRUE(std::isnan(widen(narrow<BFloat16>(NAN))));
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Emulated communicators: collectives among threads and among processes,
// aborts, faults, and that nothing is left in shared memory afterwards. Ranks
// as processes run nccl_rank.
#include "tests/runtime/cuda/emulation/emulation_test.h"
#include "tests/runtime/cuda/emulation/nccl_cases.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

using namespace fsdpc::runtime::emulation;

extern char **environ;

namespace {

// Returns true if the id's shared memory still has a name.
bool hasName(const NcclId &id) {
  int file = shm_open(id.data(), O_RDONLY, 0);
  if (file >= 0)
    close(file);
  return file >= 0;
}

class Nccl : public testing::Test {
protected:
  explicit Nccl(const Settings &settings = {}) : cuda(settings) {
    EXPECT_CUDA(cuda.makeNcclId(id));
  }
  // Runs `body` on one thread per rank, with a communicator of all ranks.
  void onRanks(int size, std::function<void(NcclRank &)> body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        NcclRank here(cuda, id, rank, size);
        if (here.error.empty())
          body(here);
        EXPECT_EQ(here.error, "") << "rank " << rank;
      });
    for (std::thread &thread : threads)
      thread.join();
  }

  Emulation cuda;
  NcclId id;
};

// Ranks as threads of one process.
TEST_F(Nccl, threadsRunEveryCollective) {
  for (int size : {1, 2, 3, 5}) {
    ASSERT_CUDA(cuda.makeNcclId(id));
    onRanks(size, [](NcclRank &rank) { rank.runAllCases(); });
    EXPECT_FALSE(hasName(id));
  }
  EXPECT_EQ(cuda.alive().communicators, 0u);
  EXPECT_EQ(cuda.alive().deviceBytes, 0u);
}

pid_t spawn(const NcclId &id, int rank, int size, const char *what,
            int output = -1) {
  std::string number = std::to_string(rank), of = std::to_string(size);
  const char *arguments[] = {NCCL_RANK,  id.data(), number.c_str(),
                             of.c_str(), what,      nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (output >= 0)
    posix_spawn_file_actions_adddup2(&actions, output, 1);
  pid_t process = -1;
  posix_spawn(&process, NCCL_RANK, &actions, nullptr,
              const_cast<char **>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  return process;
}

// Ranks as processes that share memory.
TEST_F(Nccl, processesRunEveryCollective) {
  for (int size : {2, 4}) {
    ASSERT_CUDA(cuda.makeNcclId(id));
    std::vector<pid_t> processes;
    for (int rank = 0; rank < size; ++rank)
      processes.push_back(spawn(id, rank, size, "cases"));
    for (pid_t process : processes) {
      int status = -1;
      waitpid(process, &status, 0);
      EXPECT_EQ(status, 0);
    }
    EXPECT_FALSE(hasName(id));
  }
}

// A rank that dies leaves nothing behind, and ranks that wait for it can abort.
TEST_F(Nccl, survivorsOfAKilledProcessAbort) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t process = spawn(id, 1, 2, "hang", ends[1]);
  NcclRank rank(cuda, id, 0, 2);
  ASSERT_EQ(rank.error, "");
  char line[8];
  ASSERT_EQ(read(ends[0], line, 7), 7); // "joined"
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  EXPECT_FALSE(hasName(id));
  auto *whole = rank.allocate<int32_t>(2);
  ASSERT_CUDA(cuda.allGather(rank.communicator, whole, whole, 4, rank.stream));
  pauseFor(2000);
  EXPECT_CUDA(cuda.communicatorState(rank.communicator)); // it cannot know
  EXPECT_EQ(cuda.destroyCommunicator(rank.communicator),
            status::ncclInvalidUsage);
  ASSERT_CUDA(cuda.abortCommunicator(rank.communicator));
  EXPECT_CUDA(cuda.synchronizeStream(rank.stream));
  EXPECT_EQ(cuda.communicatorState(rank.communicator),
            status::ncclInvalidArgument);
}

// A communicator is in progress until every rank has joined.
TEST_F(Nccl, joiningTakesEveryRank) {
  CudaCommunicator first = nullptr, second = nullptr, third = nullptr;
  ASSERT_CUDA(cuda.initCommunicator(first, 0, 2, id, {}));
  EXPECT_EQ(cuda.communicatorState(first), cudaInProgress);
  CudaStream stream = nullptr;
  ASSERT_CUDA(cuda.createStream(stream, false));
  void *memory = nullptr;
  ASSERT_CUDA(cuda.allocateDevice(memory, 64));
  EXPECT_EQ(cuda.allGather(first, memory, memory, 4, stream),
            status::ncclInvalidUsage);
  EXPECT_EQ(cuda.initCommunicator(third, 0, 2, id, {}),
            status::ncclInvalidArgument);
  EXPECT_EQ(cuda.initCommunicator(third, 1, 3, id, {}),
            status::ncclInvalidArgument);
  EXPECT_TRUE(hasName(id));
  ASSERT_CUDA(cuda.initCommunicator(second, 1, 2, id, {}));
  EXPECT_CUDA(cuda.communicatorState(first));
  EXPECT_CUDA(cuda.communicatorState(second));
  EXPECT_FALSE(hasName(id));
  EXPECT_EQ(cuda.registerMemory(first, memory, 65, memory),
            status::invalidValue);
}

// A window is of memory that NCCL has allocated and keeps it. Ranks whose
// buffers lie at different places of it get an error instead of values.
TEST_F(Nccl, windowsAreSymmetric) {
  CudaCommunicator ranks[2];
  CudaStream streams[2];
  void *memory[2], *windows[2], *plain = nullptr;
  for (int rank = 0; rank < 2; ++rank)
    ASSERT_CUDA(cuda.initCommunicator(ranks[rank], rank, 2, id, {}));
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_CUDA(cuda.createStream(streams[rank], false));
    ASSERT_CUDA(cuda.allocateShared(memory[rank], 4096));
    ASSERT_CUDA(
        cuda.registerWindow(ranks[rank], memory[rank], 4096, windows[rank]));
  }
  ASSERT_CUDA(cuda.allocateDevice(plain, 4096));
  void *none = nullptr;
  EXPECT_EQ(cuda.registerWindow(ranks[0], plain, 4096, none),
            status::ncclInvalidArgument);
  EXPECT_EQ(cuda.freeShared(plain), status::ncclInvalidUsage);
  EXPECT_EQ(cuda.freeShared(memory[0]), status::ncclInvalidUsage);
  auto gather = [&](int rank, size_t place) {
    char *whole = static_cast<char *>(memory[rank]) + place;
    EXPECT_CUDA(cuda.allGather(ranks[rank], whole, whole, 4, streams[rank]));
  };
  for (int rank = 0; rank < 2; ++rank)
    gather(rank, 64);
  for (CudaStream stream : streams)
    EXPECT_CUDA(cuda.synchronizeStream(stream));
  for (int rank = 0; rank < 2; ++rank)
    gather(rank, 64 + size_t(rank) * 64);
  while (!cuda.communicatorState(ranks[0]) && !cuda.communicatorState(ranks[1]))
    pauseFor(100);
  for (CudaCommunicator each : ranks)
    EXPECT_CUDA(cuda.abortCommunicator(each)); // ends its windows, too
  for (CudaStream stream : streams)
    EXPECT_CUDA(cuda.synchronizeStream(stream));
  for (void *each : memory)
    EXPECT_CUDA(cuda.freeShared(each));
}

// A split takes every rank, and the parent rests meanwhile. Colors are groups
// of any ranks, which keep their order.
TEST_F(Nccl, splittingTakesEveryRank) {
  CudaCommunicator whole[3], parts[3];
  for (int rank = 0; rank < 3; ++rank)
    ASSERT_CUDA(cuda.initCommunicator(whole[rank], rank, 3, id, {}));
  CudaStream stream = nullptr;
  ASSERT_CUDA(cuda.createStream(stream, false));
  void *memory = nullptr;
  ASSERT_CUDA(cuda.allocateDevice(memory, 64));
  EXPECT_EQ(cuda.splitCommunicator(parts[0], whole[0], -1),
            status::ncclInvalidArgument);
  ASSERT_CUDA(cuda.splitCommunicator(parts[0], whole[0], 7));
  ASSERT_CUDA(cuda.splitCommunicator(parts[1], whole[1], 0));
  EXPECT_EQ(cuda.communicatorState(whole[0]), cudaInProgress);
  EXPECT_EQ(cuda.communicatorState(parts[0]), cudaInProgress);
  EXPECT_EQ(cuda.allGather(whole[0], memory, memory, 4, stream),
            status::ncclInvalidUsage);
  EXPECT_EQ(cuda.splitCommunicator(parts[2], whole[0], 7),
            status::ncclInvalidUsage);
  ASSERT_CUDA(cuda.splitCommunicator(parts[2], whole[2], 7));
  EXPECT_CUDA(cuda.communicatorState(parts[1])); // alone
  EXPECT_EQ(cuda.communicatorState(parts[2]), cudaInProgress);
  EXPECT_CUDA(cuda.communicatorState(parts[0])); // has found the others
  EXPECT_CUDA(cuda.communicatorState(parts[2]));
  EXPECT_EQ(cuda.reduce(parts[2], memory, memory, 4, WireType::f32, 2, stream),
            status::ncclInvalidArgument); // it has two ranks
  for (CudaCommunicator *list : {parts, whole})
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_CUDA(cuda.destroyCommunicator(list[rank]));
}

// Sleeps until `count` reaches `wanted`.
void awaitCount(const std::atomic<int> &count, int wanted) {
  while (count < wanted)
    pauseFor(100);
}

// An abort on one rank ends the calls that the others wait in, and they see an
// error.
TEST_F(Nccl, anAbortWakesEveryRank) {
  std::atomic<int> enqueued{0};
  onRanks(3, [&](NcclRank &rank) {
    auto *whole = rank.allocate<int32_t>(3);
    if (rank.rank == 2) {
      awaitCount(enqueued, 2);
      pauseFor(2000);
      EXPECT_CUDA(cuda.abortCommunicator(rank.communicator));
    } else {
      EXPECT_CUDA(cuda.allGather(rank.communicator, whole + rank.rank, whole, 4,
                                 rank.stream));
      ++enqueued;
      rank.synchronize();
      EXPECT_EQ(cuda.communicatorState(rank.communicator),
                status::ncclRemoteError);
      EXPECT_EQ(cuda.errorText(status::ncclRemoteError),
                "remote process exited or there was a network error: rank 2 "
                "aborted the communicator");
      EXPECT_CUDA(cuda.abortCommunicator(rank.communicator));
    }
    rank.communicator = nullptr;
  });
}

// Ranks that make different calls get an error instead of data.
TEST_F(Nccl, unequalCallsAreAnError) {
  std::atomic<int> seen{0};
  onRanks(2, [&](NcclRank &rank) {
    auto *whole = rank.allocate<int32_t>(4);
    size_t bytes = rank.rank == 0 ? 4 : 8;
    EXPECT_CUDA(
        cuda.allGather(rank.communicator, whole, whole, bytes, rank.stream));
    CudaStatus state;
    while ((state = cuda.communicatorState(rank.communicator)) == cudaOk)
      pauseFor(100);
    EXPECT_EQ(state, status::ncclInvalidUsage);
    ++seen; // both, before one aborts
    awaitCount(seen, 2);
    EXPECT_CUDA(cuda.abortCommunicator(rank.communicator));
    rank.synchronize();
    rank.communicator = nullptr;
  });
}

// Sums that are not exact depend on the seed, and on nothing else.
TEST_F(Nccl, theOrderOfSumsIsTheSeeds) {
  auto sumOf = [](uint64_t seed) {
    Settings settings;
    settings.seed = seed;
    Emulation cuda(settings);
    NcclId id;
    EXPECT_CUDA(cuda.makeNcclId(id));
    std::vector<float> sums(3);
    std::vector<std::thread> threads;
    for (int number = 0; number < 3; ++number)
      threads.emplace_back([&, number] {
        NcclRank rank(cuda, id, number, 3);
        auto *whole = rank.allocate<float>(3);
        float values[] = {1, 1e8f, -1e8f};
        std::fill_n(whole, 3, values[number]);
        rank.check(cuda.reduceScatter(rank.communicator, whole, whole + number,
                                      1, WireType::f32, rank.stream),
                   "reduceScatter");
        rank.synchronize();
        EXPECT_EQ(rank.error, "");
        sums[number] = whole[number];
      });
    for (std::thread &thread : threads)
      thread.join();
    return sums;
  };
  EXPECT_EQ(sumOf(0), (std::vector<float>{0, 0, 0})); // in rank order
  EXPECT_EQ(sumOf(1), sumOf(1));
  EXPECT_NE(sumOf(1), sumOf(0));
}

class NcclFault : public Nccl {
protected:
  static Settings settingsFor(Fault::Kind kind) {
    Settings settings;
    settings.fault = {kind, 2, 1};
    return settings;
  }
  explicit NcclFault(Fault::Kind kind) : Nccl(settingsFor(kind)) {}
  // The first collective runs. The second hangs on both ranks until they abort;
  // rank 1's state is `expected` then.
  void run(CudaStatus expected) {
    std::atomic<int> ready{0};
    onRanks(2, [&](NcclRank &rank) {
      auto *whole = rank.allocate<int32_t>(2);
      CudaEvent event = nullptr;
      EXPECT_CUDA(cuda.createEvent(event));
      for (int i = 0; i < 2; ++i) {
        rank.synchronize();
        EXPECT_CUDA(cuda.allGather(rank.communicator, whole + rank.rank, whole,
                                   4, rank.stream));
      }
      EXPECT_CUDA(cuda.recordEvent(event, rank.stream));
      CudaStatus state = cudaOk;
      while (rank.rank == 1 && state != expected) {
        state = cuda.communicatorState(rank.communicator);
        pauseFor(100);
      }
      pauseFor(5000);
      bool done = true;
      EXPECT_CUDA(cuda.queryEvent(event, done));
      EXPECT_FALSE(done);
      EXPECT_EQ(cuda.communicatorState(rank.communicator),
                rank.rank == 1 ? expected : cudaOk);
      ++ready; // both, before one aborts
      awaitCount(ready, 2);
      EXPECT_CUDA(cuda.abortCommunicator(rank.communicator));
      rank.synchronize();
      rank.communicator = nullptr;
    });
  }
};

class AsynchronousError : public NcclFault {
protected:
  AsynchronousError() : NcclFault(Fault::nccl) {}
};

// The error is returned by communicatorState only.
TEST_F(AsynchronousError, showsInTheState) { run(status::ncclSystemError); }

class SilentRank : public NcclFault {
protected:
  SilentRank() : NcclFault(Fault::silent) {}
};

// Nothing reports the fault; only a watchdog can notice it.
TEST_F(SilentRank, hangsWithoutAWord) { run(cudaOk); }

} // namespace

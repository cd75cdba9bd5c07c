// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Times what a training step asks of the host's communicators: a reduce-scatter
// of an f32 gradient and an all-gather of the shards, beside plain copies of as
// many bytes.
//
// usage: collective_bench TRANSPORT RANKS MIB [REPEATS]
//
// TRANSPORT is local (ranks as threads), nodes (threads, each on a virtual node
// of its own), tcp (starts RANKS processes) or mpi (run it under mpirun). MIB
// is the size of the whole gradient. Prints medians of REPEATS (9) runs on rank
// 0: the time by the clock, the time on a core, and how fast that is. A copy of
// memcpy, which all ranks run at once, is 100 %.
#include "runtime/comm/communicator.h"
#include "runtime/comm/tcp/tcp.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

struct Sizes {
  int64_t elements;
  int repeats;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Floats on huge pages, as a program's memory is. Never freed.
float *allocate(int64_t count, float value) {
  constexpr size_t hugePage = size_t(2) << 20;
  size_t bytes = (size_t(count) * 4 + hugePage - 1) / hugePage * hugePage;
  void *memory = aligned_alloc(hugePage, bytes);
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::fill_n(static_cast<float *>(memory), count, value);
  return static_cast<float *>(memory);
}

// Returns the milliseconds of a clock.
double milliseconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return double(time.tv_sec) * 1e3 + double(time.tv_nsec) / 1e6;
}

// Times one operation of this rank, which moves `bytes` to and from memory.
struct Timing {
  const char *name;
  double bytes;
  std::vector<double> wall = {}, core = {};

  template <typename Run> void time(Communicator &channel, Run &&run) {
    channel.barrier();
    double begin = milliseconds(CLOCK_MONOTONIC);
    double coreBegin = milliseconds(CLOCK_THREAD_CPUTIME_ID);
    run();
    core.push_back(milliseconds(CLOCK_THREAD_CPUTIME_ID) - coreBegin);
    channel.barrier();
    wall.push_back(milliseconds(CLOCK_MONOTONIC) - begin);
  }
  // The first run touches all memory and does not count.
  double coreMs() const { return median({core.begin() + 1, core.end()}); }
  double wallMs() const { return median({wall.begin() + 1, wall.end()}); }
  double bytesPerMs() const { return bytes / coreMs(); }
};

// Runs one rank. Rank 0 prints.
void measure(Job &job, Sizes sizes) {
  int64_t shard = sizes.elements / job.size, whole = shard * job.size;
  float *gradient = allocate(whole, float(job.rank));
  float *gathered = allocate(whole, 0), *sums = allocate(shard, 0);
  Communicator &reduce = *job.channel[reduceChannel];
  Communicator &gather = *job.channel[gatherChannel];
  // Each rank reads its part of all gradients and writes the sum, and reads and
  // writes all of what it gathers.
  Timing timings[] = {{"reduce-scatter", double(whole + shard) * 4},
                      {"all-gather", double(whole) * 8},
                      {"memcpy", double(whole) * 8}};
  auto &[reduced, allGathered, copied] = timings;
  for (int i = 0; i <= sizes.repeats; ++i) {
    reduced.time(reduce, [&] {
      reduce.reduceScatter(
          {gradient, WireType::f32, WireType::f32, whole, shard, sums, false});
    });
    allGathered.time(
        gather, [&] { gather.allGather(sums, gathered, size_t(shard) * 4); });
    copied.time(gather, [&] { memcpy(gathered, gradient, size_t(whole) * 4); });
  }
  if (job.rank != 0)
    return;
  printf("%s, %d ranks, %lld MiB:\n", job.transport.c_str(), job.size,
         (long long)(sizes.elements >> 18));
  for (const Timing &timing : timings)
    printf("  %-14s %6.1f ms, %6.1f core ms, %5.1f GB/s, %3.0f %%\n",
           timing.name, timing.wallMs(), timing.coreMs(),
           timing.bytesPerMs() / 1e6,
           100 * timing.bytesPerMs() / copied.bytesPerMs());
}

int runThreads(int ranks, int perNode, Sizes sizes) {
  auto jobs = makeLocalJobs(ranks, perNode);
  std::vector<std::thread> threads;
  for (auto &job : jobs)
    threads.emplace_back([&] { measure(*job, sizes); });
  for (std::thread &thread : threads)
    thread.join();
  return 0;
}

int runJoined(Result<std::unique_ptr<Job>> joined, Sizes sizes) {
  if (!joined) {
    fprintf(stderr, "error: %s\n", joined.error().message.c_str());
    return 3;
  }
  measure(**joined, sizes);
  return 0;
}

// One process per rank, on a port that its number makes unlikely to be taken.
int runProcesses(int ranks, Sizes sizes) {
  LaunchEnvironment environment;
  environment.ranks = ranks;
  environment.launcher = "bench";
  environment.address = "localhost";
  environment.port = 20000 + getpid() % 10000;
  environment.secret = "a secret of no importance";
  for (int rank = 0; rank < ranks; ++rank)
    if (fork() == 0) {
      environment.rank = rank;
      int code = runJoined(joinTcp(environment, 0, 0), sizes);
      fflush(nullptr);
      _exit(code);
    }
  int status = 0, worst = 0;
  while (wait(&status) > 0)
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 3);
  return worst;
}

} // namespace

int main(int argc, char **argv) {
  std::string transport = argc > 1 ? argv[1] : "";
  int ranks = argc > 2 ? atoi(argv[2]) : 0;
  int64_t mebibytes = argc > 3 ? atoll(argv[3]) : 0;
  Sizes sizes = {mebibytes << 18, argc > 4 ? atoi(argv[4]) : 9};
  if (ranks > 0 && mebibytes > 0 && sizes.repeats > 0) {
    if (transport == "local" || transport == "nodes")
      return runThreads(ranks, transport == "nodes", sizes);
    if (transport == "tcp")
      return runProcesses(ranks, sizes);
    if (transport == "mpi")
      return runJoined(joinMpi(0, 0), sizes);
  }
  fprintf(stderr,
          "usage: collective_bench local|nodes|tcp|mpi RANKS MIB [REPEATS]\n");
  return 2;
}

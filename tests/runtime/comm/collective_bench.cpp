// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Times what a training step asks of the host's communicators: a reduce-scatter
// of an f32 gradient and an all-gather of the shards.
//
// usage: collective_bench TRANSPORT RANKS MIB [REPEATS]
//
// TRANSPORT is local (ranks as threads), nodes (threads, each on a virtual node
// of its own), tcp (starts RANKS processes) or mpi (run it under mpirun). MIB
// is the size of the whole gradient. Prints the median of REPEATS (9) runs.
#include "runtime/comm/communicator.h"
#include "runtime/comm/tcp/tcp.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
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

// Runs one rank. Rank 0 prints; a barrier begins and ends each interval.
void measure(Job &job, Sizes sizes) {
  int64_t shard = sizes.elements / job.size;
  std::vector<float> gradient(size_t(sizes.elements), float(job.rank));
  std::vector<float> whole(size_t(sizes.elements)), sums(size_t(shard), 0.0f);
  Communicator &reduce = *job.channel[reduceChannel];
  Communicator &gather = *job.channel[gatherChannel];
  std::vector<double> reduced, gathered;
  auto time = [](Communicator &channel, auto &&run) {
    channel.barrier();
    auto begin = std::chrono::steady_clock::now();
    run();
    channel.barrier();
    return std::chrono::duration<double, std::milli>(
               std::chrono::steady_clock::now() - begin)
        .count();
  };
  for (int i = 0; i <= sizes.repeats; ++i) {
    double a = time(reduce, [&] {
      reduce.reduceScatter({gradient.data(), WireType::f32, WireType::f32,
                            shard * job.size, shard, sums.data(), false});
    });
    double b = time(gather, [&] {
      gather.allGather(sums.data(), whole.data(), size_t(shard) * 4);
    });
    if (i == 0) // touches all memory for the first time
      continue;
    reduced.push_back(a);
    gathered.push_back(b);
  }
  if (job.rank == 0)
    printf("%s, %d ranks, %lld MiB: reduce-scatter %.1f ms, all-gather %.1f "
           "ms, both %.1f ms\n",
           job.transport.c_str(), job.size, (long long)(sizes.elements >> 18),
           median(reduced), median(gathered),
           median(reduced) + median(gathered));
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

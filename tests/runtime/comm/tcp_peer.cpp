// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of a TCP job, for tcp_test. Its first argument says what to do:
//
//   cases        runs the collectives and compares with ranks as threads
//   cuts         the same, while its connections are closed one by one
//   typed        runs those on typed values and compares with plain loops
//   pairs        exchanges a value with each other rank on each channel
//   timeouts     checks that every connection breaks after SILENCE seconds
//   ACTION RANK  rank RANK does ACTION after a barrier: kill, stop (signals to
//                itself), fail, refuse (its input) or leave; the other ranks
//                continue
//
// FILES, if set, is its limit of open files, PER_NODE the ranks of a virtual
// node.
#include "runtime/abi/connections.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/tcp/tcp.h"
#include "runtime/comm/wire.h"
#include "runtime/support/diagnostics.h"
#include "tests/runtime/comm/collective_cases.h"
#include "tests/runtime/comm/typed_cases.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

// Returns the user timeouts, in milliseconds, of all connections of this
// process.
static std::string timeoutsOfConnections() {
  std::string found;
  for (const auto &entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    int file = atoi(entry.path().filename().c_str()), timeout = 0;
    sockaddr_storage peer;
    socklen_t length = sizeof peer, bytes = sizeof timeout;
    if (getpeername(file, reinterpret_cast<sockaddr *>(&peer), &length) == 0 &&
        getsockopt(file, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, &bytes) == 0)
      found += std::to_string(timeout) + " ";
  }
  return found;
}

// Closes a connection of this process, any of them, ten times a second.
class Cuts {
public:
  Cuts() : thread([this] { cut(); }) {}
  ~Cuts() {
    ends = true;
    thread.join();
  }

private:
  void cut() {
    for (size_t i = 0; !ends; ++i) {
      usleep(100000);
      std::vector<int> files;
      for (const auto &entry :
           std::filesystem::directory_iterator("/proc/self/fd")) {
        int file = atoi(entry.path().filename().c_str());
        sockaddr_storage peer;
        socklen_t length = sizeof peer;
        if (getpeername(file, reinterpret_cast<sockaddr *>(&peer), &length) ==
            0)
          files.push_back(file);
      }
      if (!files.empty())
        shutdown(files[i * 7 % files.size()], SHUT_RDWR);
    }
  }

  std::atomic<bool> ends = false;
  std::thread thread;
};

int main(int argc, char **argv) {
  std::string action = argc > 1 ? argv[1] : "cases";
  LaunchEnvironment environment = *readLaunchEnvironment();
  if (const char *files = getenv("FILES")) {
    rlimit limit = {rlim_t(atoi(files)), rlim_t(atoi(files))};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  const char *silence = getenv("SILENCE");
  double silenceSeconds = silence ? atof(silence) : 0;
  const char *perNode = getenv("PER_NODE");
  auto joined =
      joinTcp(environment, perNode ? atoi(perNode) : 0, silenceSeconds);
  if (!joined) {
    return int(printError(joined.error()));
  }
  std::unique_ptr<Job> job = std::move(*joined);
  if (action == "cases" || action == "cuts") {
    std::optional<Cuts> cuts;
    if (action == "cuts")
      cuts.emplace();
    auto run = [&](Job &job) {
      return testing::runCases(job) + testing::runGroupCases(job);
    };
    std::string results = run(*job);
    cuts.reset();
    auto jobs = makeLocalJobs(job->size, 0);
    if (results != testing::runJobs(jobs, run)[size_t(job->rank)])
      fail(runError("rank " + std::to_string(job->rank) +
                    " differs from threads"));
    return 0;
  }
  if (action == "typed") {
    if (std::string why = testing::runTypedCases(*job); !why.empty())
      fail(runError(why));
    return 0;
  }
  if (action == "pairs") {
    std::vector<int> sent(size_t(job->size), job->rank), received = sent;
    for (auto &channel : job->channel)
      allToAll(*channel, sent.data(), received.data(), sizeof(int));
    for (int peer = 0; peer < job->size; ++peer)
      if (received[size_t(peer)] != peer)
        fail(runError("rank " + std::to_string(job->rank) + " has " +
                      std::to_string(received[size_t(peer)]) + " of rank " +
                      std::to_string(peer)));
    return 0;
  }
  if (action == "timeouts") {
    // With each other rank on each channel.
    int value = 0;
    std::vector<int> all(size_t(job->size));
    for (auto &channel : job->channel)
      channel->allGather(&value, all.data(), sizeof value);
    std::string found = timeoutsOfConnections(), expected;
    job->channel[controlChannel]->barrier();
    int64_t connections = mostConnections(job->rank, job->size);
    for (int i = 0; i < connections; ++i)
      expected += std::to_string(int(silenceSeconds * 1000)) + " ";
    if (found != expected)
      fail(runError("rank " + std::to_string(job->rank) + " has '" + found +
                    "', not '" + expected + "'"));
    return 0;
  }
  Communicator &control = *job->channel[controlChannel];
  control.barrier();
  if (argc > 2 && job->rank == atoi(argv[2])) {
    if (action == "kill")
      raise(SIGKILL);
    if (action == "stop")
      raise(SIGSTOP);
    if (action == "fail")
      fail(runError("rank " + std::to_string(job->rank) + " had enough"));
    if (action == "refuse")
      fail(inputError("rank " + std::to_string(job->rank) + " read nonsense"));
  }
  if (action == "leave")
    return 0;
  for (;;) {
    control.barrier();
    usleep(10000);
  }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of a TCP job, for tcp_test. Its first argument says what to do:
//
//   cases        runs the collectives and compares with ranks as threads
//   typed        runs those on typed values and compares with plain loops
//   ACTION RANK  rank RANK does ACTION after a barrier: kill, stop (signals to
//                itself), fail or leave; the other ranks continue
#include "runtime/comm/failure.h"
#include "runtime/comm/tcp/tcp.h"
#include "tests/runtime/comm/collective_cases.h"
#include "tests/runtime/comm/typed_cases.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

int main(int argc, char **argv) {
  std::string action = argc > 1 ? argv[1] : "cases";
  LaunchEnvironment environment = *readLaunchEnvironment();
  const char *silence = getenv("SILENCE");
  auto joined = joinTcp(environment, 0, silence ? atof(silence) : 0);
  if (!joined) {
    if (const std::string &message = joined.error().message; !message.empty())
      fprintf(stderr, "error: %s\n", message.c_str());
    return 3;
  }
  std::unique_ptr<Job> job = std::move(*joined);
  if (action == "cases") {
    auto run = [](Job &job) {
      return testing::runCases(job) + testing::runGroupCases(job);
    };
    std::string results = run(*job);
    auto jobs = makeLocalJobs(job->size, 0);
    if (results != testing::runJobs(jobs, run)[size_t(job->rank)])
      fail("rank " + std::to_string(job->rank) + " differs from threads");
    return 0;
  }
  if (action == "typed") {
    if (std::string why = testing::runTypedCases(*job); !why.empty())
      fail(why);
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
      fail("rank " + std::to_string(job->rank) + " had enough");
  }
  if (action == "leave")
    return 0;
  for (;;) {
    control.barrier();
    usleep(10000);
  }
}

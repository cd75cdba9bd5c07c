// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of an mpirun: its results equal those of ranks as threads, to the
// bit.
//
// usage: mpi_test PER_NODE RANKS [typed | stop RANK]
//
// PER_NODE is the number of ranks per virtual node, or 0 for one node. With
// `typed`, the collectives on typed values are compared with plain loops. With
// `stop`, rank RANK stops itself and the others wait for it.
#include "tests/runtime/comm/collective_cases.h"
#include "tests/runtime/comm/typed_cases.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>

using namespace fsdpc;

using namespace fsdpc::runtime;

int main(int argc, char **argv) {
  int perNode = argc > 1 ? atoi(argv[1]) : 0;
  bool stops = argc > 4;
  auto joined = joinMpi(perNode, stops ? 2 : 600);
  if (!joined) {
    fprintf(stderr, "error: %s\n", joined.error().message.c_str());
    return 3;
  }
  std::unique_ptr<Job> job = std::move(*joined);
  if (argc > 2 && job->size != atoi(argv[2])) {
    fprintf(stderr, "error: %d ranks joined, not %s\n", job->size, argv[2]);
    return 3;
  }
  if (stops) {
    job->channel[controlChannel]->barrier();
    if (job->rank == atoi(argv[4]))
      raise(SIGSTOP);
    job->channel[controlChannel]->barrier();
    return 0;
  }
  if (argc > 3) {
    std::string differences = testing::runTypedCases(*job);
    if (differences.empty())
      return 0;
    fprintf(stderr, "error: %s", differences.c_str());
    job->abort(ExitCode::wrongInput);
  }
  auto run = [](Job &job) {
    return testing::runCases(job) + testing::runGroupCases(job);
  };
  std::string results = run(*job);
  auto jobs = makeLocalJobs(job->size, 0);
  if (results != testing::runJobs(jobs, run)[size_t(job->rank)]) {
    fprintf(stderr, "error: rank %d differs from ranks as threads\n",
            job->rank);
    job->abort(ExitCode::wrongInput);
  }
  return 0;
}

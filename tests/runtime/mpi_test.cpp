// One rank of an mpirun: its results equal those of ranks as threads, to the
// bit. The argument is the number of ranks per virtual node, or 0 for one node.
#include "tests/runtime/collective_cases.h"

#include <cstdio>
#include <cstdlib>

using namespace fsdpc;

using namespace fsdpc::runtime;

int main(int argc, char **argv) {
  int perNode = argc > 1 ? atoi(argv[1]) : 0;
  auto joined = joinMpi(perNode);
  if (!joined) {
    fprintf(stderr, "error: %s\n", joined.error().message.c_str());
    return 3;
  }
  std::unique_ptr<Job> job = std::move(*joined);
  if (argc > 2 && job->size != atoi(argv[2])) {
    fprintf(stderr, "error: %d ranks joined, not %s\n", job->size, argv[2]);
    return 3;
  }
  std::string results = testing::runCases(*job);
  auto jobs = makeLocalJobs(job->size, 0);
  if (results != testing::runJobs(jobs)[job->rank]) {
    fprintf(stderr, "error: rank %d differs from ranks as threads\n",
            job->rank);
    job->abort(1);
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of an emulated communicator as a process, for the tests:
//
//   nccl_rank ID RANK SIZE cases|hang
//
// cases: exits with 0 if every collective is right. hang: joins, prints a line
// and waits to be killed.
#include "tests/runtime/cuda/emulation/nccl_cases.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

using namespace fsdpc;

using namespace fsdpc::runtime;
using namespace fsdpc::runtime::emulation;

int main(int, char **argv) {
  NcclId id = {};
  strncpy(id.data(), argv[1], id.size() - 1);
  NcclRank rank(cudaApi(), id, atoi(argv[2]), atoi(argv[3]));
  if (strcmp(argv[4], "hang") == 0 && rank.error.empty()) {
    puts("joined");
    fflush(stdout);
    for (;;)
      pause();
  }
  rank.runAllCases();
  if (rank.error.empty())
    return 0;
  fprintf(stderr, "error: rank %d: %s\n", rank.rank, rank.error.c_str());
  return 3;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints what the ranks of TCP jobs of many sizes take, as a table in Markdown,
// from the functions and types that the ranks use: connections, the bytes that
// rank 0 sends when they meet, and memory for communication. With RANKS and
// PER_NODE as arguments it prints the usual connections of rank 0 and of
// another rank, and the most of both, which many_ranks.py compares with what
// ranks have.
#include "runtime/abi/connections.h"
#include "runtime/abi/staging.h"
#include "runtime/comm/wire.h"

#include <cstdio>
#include <cstdlib>

using namespace fsdpc;

int main(int argc, char **argv) {
  if (argc == 3) {
    int ranks = atoi(argv[1]), perNode = atoi(argv[2]);
    printf("%lld %lld %lld %lld\n",
           (long long)usualConnections(0, ranks, perNode),
           (long long)usualConnections(1, ranks, perNode),
           (long long)mostConnections(0, ranks),
           (long long)mostConnections(1, ranks));
    return 0;
  }
  printf("| ranks | per host | usual connections of rank 0 | of another rank | "
         "at most of rank 0 | MB that rank 0 sends | MiB for communication |\n"
         "|---|---|---|---|---|---|---|\n");
  for (auto [ranks, perNode] : {std::pair{16, 16},
                                {256, 256},
                                {256, 8},
                                {1024, 8},
                                {1024, 1},
                                {16384, 8}}) {
    double told = double(sizeof(runtime::Start)) +
                  double(sizeof(runtime::Member)) * ranks;
    printf("| %d | %d | %lld | %lld | %lld | %.1f | %.1f |\n", ranks, perNode,
           (long long)usualConnections(0, ranks, perNode),
           (long long)usualConnections(1, ranks, perNode),
           (long long)mostConnections(0, ranks), told * (ranks - 1) / 1e6,
           double(communicationBytes(ranks, perNode, "tcp")) / (1 << 20));
  }
  return 0;
}

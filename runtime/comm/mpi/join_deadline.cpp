// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See join_deadline.h. mpirun ends the other ranks when it sees the code of the
// first one.
#include "runtime/comm/mpi/join_deadline.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/interfaces.h"
#include "runtime/comm/thread.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace fsdpc::runtime {

JoinDeadline::JoinDeadline(double seconds, int rank) {
  watcher =
      startThread("the limit on joining", [=, this] { watch(seconds, rank); });
}

JoinDeadline::~JoinDeadline() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    joined = true;
  }
  changed.notify_one();
  watcher.join();
}

void JoinDeadline::watch(double seconds, int rank) {
  // All ranks wait for each other, so a higher one leaves a lower one the time
  // to speak.
  std::chrono::duration<double> limit(seconds + 2 * std::min(rank, 3));
  std::unique_lock<std::mutex> lock(mutex);
  if (changed.wait_for(lock, limit, [&] { return joined; }))
    return;
  // MPI_Abort would need the network that is missing.
  setAbort(nullptr);
  char text[32];
  snprintf(text, sizeof text, "%g", seconds);
  fail(machineError(concat(
      "rank ", rank,
      ": MPI has not connected all ranks "
      "within ",
      text,
      " s (--join-timeout, FSDPC_JOIN_SECONDS); this "
      "machine has the interfaces ",
      listOfInterfaces(),
      ": choose the one that leads to the other machines with --interface "
      "NAME, and check that they accept its connections")));
}

} // namespace fsdpc::runtime

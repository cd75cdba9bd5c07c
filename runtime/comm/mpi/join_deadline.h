// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// MPI has no limit on the time in which ranks connect: if they cannot reach
// each other, MPI_Init or the first exchange waits for ever.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace fsdpc::runtime {

/// Ends the process with machineFailed, and with a line that says how to choose
/// the network, if this still exists after `seconds`. `rank` is the launcher's;
/// the lowest rank that waits speaks.
class JoinDeadline {
public:
  JoinDeadline(double seconds, int rank);
  ~JoinDeadline();

private:
  void watch(double seconds, int rank);

  std::mutex mutex;
  std::condition_variable changed;
  bool joined = false; ///< under the mutex
  std::thread watcher;
};

} // namespace fsdpc::runtime

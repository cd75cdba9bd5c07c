// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Notices a rank of an MPI job that has stopped. mpirun notices one that has
// ended, but not one that lives and does nothing: stopped by a signal or a
// debugger, or waiting for a disk that is gone. As over TCP (tcp_session.h),
// each rank and rank 0 tell each other every few seconds that they are there,
// on a thread of their own, because a collective waits for as long as it takes.
#pragma once

#include "runtime/comm/mpi/mpi_plugin.h"
#include "runtime/comm/socket.h"
#include "runtime/comm/wire.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fsdpc::runtime {

/// Starts a thread that runs for as long as this lives. It ends the process by
/// fail() when it has found a rank that is silent, so nobody asks it anything.
class MpiWatch {
public:
  /// `channel` is the watch's own. `hosts` are by rank. A rank that is silent
  /// for `silence` seconds (0: no limit) ends the job with a line that names
  /// it.
  MpiWatch(const MpiPlugin *mpi, void *channel, int rank, double silence,
           std::vector<std::string> hosts);
  /// Leaves together with the other ranks; rank 0 last.
  ~MpiWatch();

private:
  void watch();
  void hearAll();
  void checkSilence(Deadline now);
  bool allLeft() const;

  const MpiPlugin *mpi;
  void *channel;
  const int self;
  const double silence;
  const std::vector<std::string> hosts;
  std::vector<int> peers;      ///< all others on rank 0, rank 0 on the others
  std::vector<Deadline> heard; ///< by rank, as what follows
  std::vector<bool> left;      ///< ranks that announced that they leave
  std::mutex mutex;
  std::condition_variable wake;
  bool leaving = false; ///< under the mutex
  std::thread watcher;
};

} // namespace fsdpc::runtime

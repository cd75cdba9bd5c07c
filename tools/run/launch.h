// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts the ranks of a job: as threads, under mpirun, or by a remote shell on
// each host.
#pragma once

#include "runtime/support/status.h"
#include "tools/run/arguments.h"
#include "tools/run/child.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::run {

/// A job that has been started.
class Launch {
public:
  /// Starts `ranks` ranks on hosts whose slots are their ranks (none: this
  /// host). `program` are the words of the program.
  static Result<Launch> start(const std::string &launcher,
                              const Arguments &arguments,
                              const std::vector<Host> &hosts, int64_t ranks,
                              std::vector<std::string> program);

  /// Returns the exit code once all has ended. Looks at the processes, so call
  /// it several times a second.
  std::optional<int> poll();
  /// Asks the ranks to save and end.
  void stop();
  /// Ends everything now.
  void kill();

private:
  void pollRemote();
  bool partsAreGone();

  std::vector<Child> children; ///< one, or with ssh one per host
  std::string launcher;
  bool byMpirun = false;
  int64_t otherHosts = 0;                     ///< than this one
  bool ranksSeen = false, shellsSeen = false; ///< mpirun has started them
  int code = -1;                      ///< of the job; -1: none has failed yet
  double failedAt = 0, goneSince = 0; ///< in seconds; 0: not so
  bool killed = false;
};

/// Returns the launcher that "auto" stands for.
std::string chooseLauncher(const Arguments &arguments);

} // namespace fsdpc::run

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The secret by which the ranks of a TCP job know each other. It is the text of
// FSDPC_SECRET if that is set. Otherwise rank 0 makes a random one for each job
// and leaves it, until all ranks have met, in a file that only the user can
// read. Ranks on machines that do not share that folder need FSDPC_SECRET.
#pragma once

#include "runtime/comm/launch_environment.h"
#include "runtime/comm/wire.h"
#include "runtime/support/status.h"

#include <string>

namespace fsdpc::runtime {

/// Rank 0's copy of the key. Removes the file at the end of the meeting.
class JobKey {
public:
  JobKey() = default;
  JobKey(const JobKey &) = delete;
  JobKey &operator=(const JobKey &) = delete;
  ~JobKey();

  /// Takes the key from FSDPC_SECRET, or makes one and writes the file. Call it
  /// only while listening on the job's port: who has the port owns the file.
  Status make(const LaunchEnvironment &environment);
  const Bytes32 &key() const { return bytes; }

private:
  Bytes32 bytes = {};
  int folder = -1;  ///< open while the file exists
  std::string name; ///< in the folder
};

/// Returns the key on another rank. Fails if there is no file (yet); the error
/// says that ranks without a shared folder need FSDPC_SECRET.
Result<Bytes32> findJobKey(const LaunchEnvironment &environment);

} // namespace fsdpc::runtime

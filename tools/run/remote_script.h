// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a remote shell runs on a host: its ranks, under torchrun's variables.
#pragma once

#include "tools/run/hosts.h"

#include <string>
#include <vector>

namespace fsdpc::run {

struct RemoteJob {
  std::vector<Host> hosts; ///< slots are ranks
  int64_t ranks = 0;
  int port = 0; ///< on which rank 0 listens
  std::vector<std::string> program;
};

/// Returns a script for /bin/sh that starts the ranks of a host and returns
/// the first exit code that is not 0. Its first line of input is the job's
/// secret; each further one is a signal for the ranks, and its end means that
/// nobody watches the job any more.
std::string remoteScript(const RemoteJob &job, size_t host);

} // namespace fsdpc::run

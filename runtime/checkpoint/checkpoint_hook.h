// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command of --after-checkpoint, which copies a checkpoint away or looks at
// it. It runs beside the training, one at a time: the next checkpoint waits
// until it has ended, so nothing that it reads is removed meanwhile.
#pragma once

#include "runtime/support/status.h"

#include <string>
#include <sys/types.h>

namespace fsdpc::runtime {

/// Used by the training loop of rank 0.
class CheckpointHook {
public:
  /// Starts a command of the shell, with the checkpoint's folder, quoted, for
  /// each {} in it. An empty command does nothing.
  Status start(const std::string &command, const std::string &folder);
  /// Waits for the command. Fails unless it ended with exit code 0.
  Status finish();

private:
  pid_t child = 0; ///< 0: none
  std::string running;
};

} // namespace fsdpc::runtime

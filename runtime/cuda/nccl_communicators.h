// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The NCCL communicators of a channel: one of all ranks and, where ranks form
// groups, one of this rank's group and one across groups.
#pragma once

#include "runtime/cuda/collectives.h"
#include "runtime/cuda/watchdog.h"

namespace fsdpc::runtime {

struct NcclCommunicators {
  CudaCommunicator ranks = nullptr;
  /// This rank's group; `ranks` if that is one group, null without groups.
  CudaCommunicator group = nullptr;
  /// The ranks with this one's place in each group, by group; null if there is
  /// one group, or if groups do not reduce on the channel.
  CudaCommunicator across = nullptr;

  /// In an order of which every communicator is behind the one that it was
  /// split from. Each is listed once.
  std::vector<CudaCommunicator> all() const {
    std::vector<CudaCommunicator> list = {ranks};
    for (CudaCommunicator other : {group, across})
      if (other && other != ranks)
        list.push_back(other);
    return list;
  }
};

/// Joins a channel's communicators. All ranks call it together. On failure it
/// ends the job: every rank either sees the failure or waits for a rank that
/// does, at most `seconds` for each communicator (0: no limit). The watchdog
/// owns them from here on.
NcclCommunicators joinNccl(CudaApi &api, Job &job, Channel channel,
                           const NcclConfig &config,
                           const CollectiveGroups &groups, double seconds,
                           Watchdog &watchdog);

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many connections a rank of a TCP job has. They are made when two ranks
// first exchange something (runtime/comm/tcp/tcp_mender.h), so this follows
// from who exchanges what.
#pragma once

#include <cstdint>

namespace fsdpc {

/// Returns the number of ranks with which one exchanges small values.
int64_t roundPeers(int ranks);
/// Returns the most connections that a rank of any number has on all channels.
/// `ranksPerNode` is 0 if all are on one node. Groups add none: their ranks are
/// among these.
int64_t dataConnections(int ranks, int ranksPerNode);
/// Adds what the watch has (runtime/comm/tcp/tcp_session.h), which is more on
/// rank 0.
int64_t connectionsOfRank(int rank, int ranks, int ranksPerNode);

} // namespace fsdpc

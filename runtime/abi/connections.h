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
/// Returns the connections that a rank has in a job without groups, owned
/// layouts and predictions, where the ranks of a node can share memory and sum
/// over nodes in it; of such a job the most. The watch has more on rank 0
/// (runtime/comm/tcp/tcp_session.h). `ranksPerNode` is 0 if all are on one
/// node.
int64_t usualConnections(int rank, int ranks, int ranksPerNode);
/// Returns the most connections in any job: one with each other rank on each
/// channel, and the watch's.
int64_t mostConnections(int rank, int ranks);

} // namespace fsdpc

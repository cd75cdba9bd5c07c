// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The staging memory of collectives: how large the windows of each channel are,
// and what a rank therefore holds for communication. Ranks that cannot read
// each other's buffers exchange them in pieces through this memory. The
// communicators of the runtime allocate it, and the memory plan counts it, by
// the functions below.
//
// All sizes are in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fsdpc {

/// The channels of a rank. Each has a communicator of its own, because streams
/// run concurrently and a communicator runs one collective at a time.
enum Channel {
  gatherChannel = 0,  ///< stream GATHER
  reduceChannel = 1,  ///< stream REDUCE
  controlChannel = 2, ///< the training loop
  channels = 3
};

/// Over TCP, up to `mostDirect` ranks send the pieces of a gather straight to
/// each other. More ranks pass pieces of up to `mostInRounds` bytes on in
/// rounds (runtime/comm/tcp/tcp_channel.cpp).
constexpr int mostDirect = 8;
constexpr size_t mostInRounds = 4096;

/// The staging memory of one channel.
struct Staging {
  static constexpr size_t header = 4096; ///< of a window, for its barrier

  size_t half = 0; ///< one piece with all its segments; a window has two halves
  size_t gather = 0; ///< what one rank puts into a half in an all-gather

  static Staging of(Channel channel, int ranks);
  /// Returns the bytes of one rank's window.
  size_t windowBytes() const;
  /// Returns the bytes that a rank touches of all windows of its node.
  int64_t touchedBytes(int ranks) const;
};

/// Returns the bytes that a rank holds or touches for communication: its
/// windows, and the pages of peers' windows that it reads, which the kernel
/// counts as its own. This is the row "communication" of the memory plan.
/// `ranksPerNode` is the number of ranks on this rank's node (0: all), and
/// `transport` is "none", "local", "mpi" or "tcp".
int64_t communicationBytes(int ranks, int ranksPerNode,
                           const std::string &transport);

/// Returns the bytes that a rank holds or touches besides those for groups of
/// `groupRanks` ranks: ShardGroups (runtime/comm/groups.h) on the gather and,
/// if it `reduces` in groups, the reduce channel. An upper bound where groups
/// end inside a node.
int64_t groupCommunicationBytes(int ranks, int groupRanks, int ranksPerNode,
                                const std::string &transport, bool reduces);

/// Bytes of the pieces in which groups hand their sums to each other.
constexpr int64_t groupPieceBytes = 256 * 1024;

} // namespace fsdpc

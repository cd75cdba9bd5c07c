// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The few MPI calls that the runtime needs, as a table of plain functions. Only
// the plugin is compiled against <mpi.h>. Its shared object is embedded in the
// runtime archive and loaded if mpirun started the program, so that a program
// needs no libmpi otherwise.
#pragma once

#include "runtime/comm/communicator.h"

#include <cstddef>

namespace fsdpc::runtime {

/// A function that returns a text returns null on success, and otherwise a
/// message that is valid until the thread's next call.
struct MpiPlugin {
  /// `host` is set to the lowest rank of this rank's host.
  const char *(*join)(int *rank, int *size, int *rankOnHost, int *ranksOnHost,
                      int *host);
  /// Makes a duplicate of MPI_COMM_WORLD. Like all functions below it is
  /// collective, except transfer, tell, hear and abort.
  const char *(*openChannel)(void **channel);
  /// Makes a channel for the ranks of `channel` that give the same color.
  const char *(*split)(void *channel, int color, void **made);
  /// Makes a window of `bytes` bytes in each rank, with a zeroed first page.
  /// All ranks must be on one host. bases[r] is set to rank r's window.
  const char *(*openWindow)(void *channel, size_t bytes, char **bases);
  /// All-to-all of `bytes` bytes per pair of ranks.
  const char *(*exchange)(void *channel, const void *sent, void *received,
                          size_t bytes);
  /// Writes rank r's piece to whole[r * stride …] for every r.
  const char *(*gather)(void *channel, const void *piece, void *whole,
                        size_t bytes, size_t stride);
  const char *(*barrier)(void *channel);
  /// Communicator::transfer. Only the ranks that have messages call it.
  const char *(*transfer)(void *channel, std::span<const Outgoing> sends,
                          std::span<const Incoming> receives);
  /// Sends one byte. Returns false without sending if the last one to this peer
  /// is still on its way. For one thread per channel.
  bool (*tell)(void *channel, int peer, unsigned char word);
  /// Receives one byte if there is one. For one thread per channel.
  bool (*hear)(void *channel, int *peer, unsigned char *word);
  void (*abort)(int code);
  void (*leave)(); ///< frees windows and channels and finalizes MPI
};

constexpr const char *mpiPluginSymbol = "fsdpc_mpi_plugin";

} // namespace fsdpc::runtime

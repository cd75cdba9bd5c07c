// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets the ranks of a TCP job find each other. Rank 0 listens, and every other
// rank opens the watch's connection to it. Rank 0 then tells all of them where
// the others listen. Connections for data are made later, when two ranks first
// exchange something (tcp_mender.h). Both ends of a connection prove that they
// know the job's key before they believe anything (wire.h).
#pragma once

#include "runtime/comm/launch_environment.h"
#include "runtime/comm/socket.h"
#include "runtime/comm/wire.h"
#include "runtime/support/status.h"

#include <string>
#include <vector>

namespace fsdpc::runtime {

/// The addresses and keys by which a rank reaches the others.
struct Mesh {
  /// A mesh without connections. Those that are made break after `silence`
  /// seconds without an answer (socket.h).
  Mesh(int ranks, double silence)
      : silence(silence), watch(size_t(ranks)), members(size_t(ranks)) {}

  const double silence;
  /// By rank: the watch's connections, on rank 0 to all others and on the
  /// others to rank 0.
  std::vector<Socket> watch;
  /// The addresses of the interface to use; empty: the system chooses.
  std::vector<Endpoint> own;
  std::vector<Member> members; ///< by rank
  Bytes32 key = {};            ///< of the job
  /// Random, and another one for each process: others know it by this.
  const Bytes32 self = randomBytes();
  /// The sockets on which other ranks call this one, from the meeting on. Rank
  /// 0 has one for each address by which it was reached.
  std::vector<Socket> listeners;
};

/// Rank 0's side. Returns once all ranks are connected to rank 0. The error
/// names the ranks that did not come in time.
Status holdMeeting(const LaunchEnvironment &environment, Mesh &mesh);
/// The side of the other ranks. Returns once rank 0 says that all ranks are
/// there. The error has no message if another rank prints the reason.
Status joinMeeting(const LaunchEnvironment &environment, Mesh &mesh);

/// The caller's part of the conversation on a new connection: proves itself to
/// the listener and the other way round, sends the greeting, whose seal it
/// adds, and returns the answer. `conversation` has the key and gets the
/// nonces.
Result<Answer> introduce(Socket &connection, Greeting greeting,
                         Conversation &conversation, Deadline deadline);
/// This process's greeting to rank `to` at the meeting, without its seal.
Greeting greetingFor(const LaunchEnvironment &environment, int to, int link,
                     const Bytes32 &self, const Endpoint &listener);

/// The words for rank 0's address in messages.
std::string meetingPlace(const LaunchEnvironment &environment);
/// What to do about an address that other machines cannot reach.
std::string loopbackRemedy();
/// A number of seconds as a user wrote it.
std::string secondsText(double seconds);
std::span<const uint8_t> bytesOf(const std::vector<Member> &members);

} // namespace fsdpc::runtime

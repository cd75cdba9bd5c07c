// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rank 0's side of the meeting, and the sentences that both sides share. It
// listens where the launcher says, leaves the job's secret for the others, and
// receives them. A rank that does not come is named.
#include "runtime/comm/tcp/secret.h"
#include "runtime/comm/tcp/tcp_reception.h"

#include <algorithm>
#include <cstdio>

namespace fsdpc::runtime {

namespace {

// The error that names the ranks that did not arrive.
Error notConnected(const LaunchEnvironment &environment,
                   const Reception &reception,
                   const std::vector<Socket> &listeners) {
  std::string notes;
  if (reception.strangers())
    notes += "; connections turned away because they did not know the job's "
             "secret: " +
             std::to_string(reception.strangers()) +
             " (set the same FSDPC_SECRET on every rank)";
  if (std::all_of(listeners.begin(), listeners.end(), isLoopback))
    notes += "; only this machine can reach that address";
  return machineError(
      reception.missing() + " of " + std::to_string(environment.ranks) + " (" +
      environment.launcher + ", " + environment.variables +
      ") did not connect to rank 0 at " + meetingPlace(environment) +
      " within " + secondsText(environment.seconds) +
      " s; start all ranks and check that they can reach this port "
      "(FSDPC_PORT selects another, FSDPC_JOIN_SECONDS sets the timeout)" +
      notes);
}

} // namespace

std::string meetingPlace(const LaunchEnvironment &environment) {
  return "'" + environment.address + "' port " +
         std::to_string(environment.port);
}

std::string secondsText(double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%g", seconds);
  return text;
}

std::span<const uint8_t> bytesOf(const std::vector<Member> &members) {
  static_assert(std::has_unique_object_representations_v<Member>);
  return {reinterpret_cast<const uint8_t *>(members.data()),
          members.size() * sizeof(Member)};
}

// The order of the locals matters. The key is made after listening has
// succeeded and its file goes before the port does, since the process that has
// the port owns the file: the next job on the port may have left its own.
Status holdMeeting(const LaunchEnvironment &environment, Mesh &mesh) {
  Result<std::vector<Socket>> listeners =
      listenOn(environment.address, environment.port);
  if (!listeners)
    return listeners.error().reworded(
        "rank 0 cannot listen on " + meetingPlace(environment) + " (" +
        listeners.error().message +
        "); MASTER_ADDR must name rank 0's machine; set FSDPC_PORT to a free "
        "port, the same on every rank");
  JobKey secret;
  FSDPC_TRY(secret.make(environment));
  mesh.key = secret.key();
  Reception reception(environment, mesh, *listeners, mesh.key);
  Deadline deadline = inSeconds(environment.seconds);
  FSDPC_TRY(reception.serve(deadline));
  // Those that did connect are told, so that they end without a message of
  // their own.
  bool complete = reception.missing().empty();
  for (int peer = 1; peer < environment.ranks; ++peer)
    reception.start(peer, complete, complete ? deadline : inSeconds(1));
  if (!complete)
    return notConnected(environment, reception, *listeners);
  return {};
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rank 0's side of the meeting, and the sentences that both sides share. It
// listens where the launcher says, leaves the job's secret for the others, and
// receives them. A rank that does not come is named.
#include "runtime/comm/interfaces.h"
#include "runtime/comm/tcp/secret.h"
#include "runtime/comm/tcp/tcp_reception.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"

#include <algorithm>
#include <cstdio>

namespace fsdpc::runtime {

namespace {

// After so many seconds a user is told what most likely keeps ranks away.
constexpr double patience = 10;

// Listens on the interface that was chosen, or where the name leads.
Result<std::vector<Socket>> listen(const LaunchEnvironment &environment,
                                   const Mesh &mesh) {
  if (mesh.own.empty())
    return listenOn(environment.address, environment.port);
  std::vector<Socket> listeners;
  for (Endpoint place : mesh.own) {
    place.port = environment.port;
    Result<Socket> made = listenOn(place);
    FSDPC_TRY(made);
    listeners.push_back(std::move(*made));
  }
  return listeners;
}

bool areLoopback(const std::vector<Socket> &listeners) {
  return std::ranges::all_of(
      listeners, [](const Socket &each) { return isLoopback(each); });
}

// The error that names the ranks that did not arrive.
Error notConnected(const LaunchEnvironment &environment,
                   const Reception &reception,
                   const std::vector<Socket> &listeners) {
  std::string notes;
  if (reception.strangers())
    notes += concat(
        "; connections turned away because they did not know the job's "
        "secret: ",
        reception.strangers(), " (set the same FSDPC_SECRET on every rank)");
  if (areLoopback(listeners))
    notes += "; " + loopbackRemedy();
  return machineError(concat(
      reception.missing(), " of ", environment.ranks, " (",
      environment.launcher, ", ", environment.variables,
      ") did not connect to rank 0 at ", meetingPlace(environment), " within ",
      secondsText(environment.seconds),
      " s; start all ranks and check that they can reach this port "
      "(FSDPC_PORT selects another, FSDPC_JOIN_SECONDS sets the timeout)",
      notes));
}

} // namespace

std::string meetingPlace(const LaunchEnvironment &environment) {
  return concat("'", environment.address, "' port ", environment.port);
}

// Debian's installer writes such a line for a machine without a name server.
std::string loopbackRemedy() {
  return "only this machine can reach that address, which is often that of a "
         "line such as '127.0.1.1 HOST' in /etc/hosts: give --interface NAME "
         "(here: " +
         listOfInterfaces() +
         "), or set MASTER_ADDR to an address that the other machines reach";
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

// The order of the locals matters. The process that holds the port owns the
// file of the key. So the key is made after listening has succeeded, and its
// file is removed before the port is released: the next job on the port may
// write its own file.
Status holdMeeting(const LaunchEnvironment &environment, Mesh &mesh) {
  Result<std::vector<Socket>> listeners = listen(environment, mesh);
  if (!listeners)
    return listeners.error().reworded(
        "rank 0 cannot listen on " + meetingPlace(environment) + " (" +
        listeners.error().message +
        "); MASTER_ADDR must name rank 0's machine; set FSDPC_PORT to a free "
        "port, the same on every rank");
  JobKey secret;
  FSDPC_TRY(secret.make(environment));
  mesh.key = secret.key();
  mesh.members[0].self = mesh.self;
  Reception reception(environment, mesh, *listeners, mesh.key);
  Deadline deadline = inSeconds(environment.seconds);
  FSDPC_TRY(reception.serve(std::min(deadline, inSeconds(patience))));
  // Only a warning: all may be on this machine, and on their way.
  if (std::string missing = reception.missing();
      environment.seconds > patience && !missing.empty() &&
      areLoopback(*listeners))
    printWarning("rank 0 at " + meetingPlace(environment) + " waits for " +
                 missing + "; " + loopbackRemedy());
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who is admitted at the meeting. A process may lose its connections before all
// ranks are there, or end and be started again; then the new one takes the
// place of the old one, and of nobody whose connections stand.
#include "runtime/comm/tcp/tcp_reception.h"

#include "runtime/support/concat.h"

#include <algorithm>

namespace fsdpc::runtime {

namespace {

// The time within which a rank whose connection broke must call again.
constexpr double returnSeconds = 10;

} // namespace

Reception::Reception(const LaunchEnvironment &environment, Mesh &mesh,
                     const std::vector<Socket> &listeners, const Bytes32 &key)
    : environment(environment), mesh(mesh),
      callers(environment.rank, environment.ranks, mesh.silence, listeners,
              key),
      job(digestOf(environment.job)), holders(size_t(environment.ranks)) {}

Status Reception::serve(Deadline until) {
  deadline = until;
  while (!isComplete() && std::chrono::steady_clock::now() < deadline)
    FSDPC_TRY(
        callers.await(deadline, -1, [this](Guest &&guest) { admit(guest); }));
  return {};
}

// Returns true if all ranks are connected. A connection that broke meanwhile is
// dropped, and its rank may call again.
bool Reception::isComplete() {
  std::span<Socket> others = std::span(mesh.watch).subspan(1);
  if (arrived < others.size())
    return false;
  for (Socket &each : others)
    if (each.isBroken()) {
      each.close();
      --arrived;
      // If its process has ended nobody will call again, so the rest of the
      // time would be waited for in vain.
      deadline = std::min(deadline, inSeconds(returnSeconds));
    }
  return arrived == others.size();
}

// Answers a greeting, and keeps the connection if it belongs here.
void Reception::admit(Guest &guest) {
  const Greeting &greeting = guest.greeting;
  // A rank of a job that has met already, for its own data.
  if (greeting.link != watchLink || greeting.connection > 0)
    return;
  Answer reply = {judge(greeting), 0, 0, {}, {}};
  if (reply.verdict == Verdict::rankTaken) {
    const Greeting &holder = holders[size_t(greeting.rank)].greeting;
    reply.process = holder.process;
    reply.host = holder.host;
  }
  seal(reply, guest.conversation);
  if (!sendAtOnce(guest.socket, reply) || reply.verdict != Verdict::welcome)
    return;
  size_t rank = size_t(greeting.rank);
  Holder &holder = holders[rank];
  // Start is sent on this connection, so its seal needs these nonces.
  holder = {greeting, guest.conversation};
  mesh.members[rank] = {greeting.host, greeting.listener, greeting.self};
  arrived += !mesh.watch[rank].isOpen();
  mesh.watch[rank] = std::move(guest.socket);
}

// A process that calls again takes its own place. Another one takes it only
// if no connection of the first is left.
Verdict Reception::judge(const Greeting &greeting) const {
  if (greeting.job != job)
    return Verdict::otherJob;
  // A caller that takes this rank for another one is as wrong about the job
  // as one with another size.
  if (greeting.ranks != environment.ranks ||
      greeting.rank >= environment.ranks || greeting.to != environment.rank)
    return Verdict::otherSize;
  size_t rank = size_t(greeting.rank);
  const Socket &held = mesh.watch[rank];
  bool isTaken = holders[rank].greeting.self != greeting.self &&
                 held.isOpen() && !held.isBroken();
  return isTaken ? Verdict::rankTaken : Verdict::welcome;
}

// A failure is not reported here: the watch covers every rank from now on, and
// finds a rank that is gone by now.
void Reception::start(int peer, bool starts, Deadline until) {
  Socket &connection = mesh.watch[size_t(peer)];
  if (!connection.isOpen())
    return;
  Start word = {
      starts, listenerFor(connection), digestOf(bytesOf(mesh.members)), {}};
  seal(word, holders[size_t(peer)].conversation);
  if (connection.send(&word, sizeof word, until) && starts)
    (void)connection.send(mesh.members.data(), bytesOf(mesh.members).size(),
                          until);
}

// Rank 0 gives the job's port back, and listens on another one of the address
// that the rank has reached it by. Without one the job ends when the rank first
// exchanges data with rank 0, or when its connection breaks.
Endpoint Reception::listenerFor(const Socket &connection) {
  Result<Endpoint> own = connection.ownEndpoint();
  if (!own)
    return {};
  for (const Socket &listener : mesh.listeners)
    if (Result<Endpoint> other = listener.ownEndpoint();
        other && other->address == own->address)
      return *other;
  own->port = 0;
  Result<Socket> made = listenOn(*own);
  if (!made)
    return {};
  Result<Endpoint> chosen = made->ownEndpoint();
  mesh.listeners.push_back(std::move(*made));
  return chosen ? *chosen : Endpoint{};
}

std::string Reception::missing() const {
  std::string names;
  int count = 0;
  for (int peer = 1; peer < environment.ranks; ++peer)
    if (!mesh.watch[size_t(peer)].isOpen() && ++count <= 8)
      names += concat(names.empty() ? "" : ", ", peer);
  if (count > 8)
    names += concat(" and ", count - 8, " more");
  return names.empty() ? names : (count > 1 ? "ranks " : "rank ") + names;
}

} // namespace fsdpc::runtime

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
      job(digestOf(environment.job)),
      // The watch is between rank 0 and each other rank.
      expected(mesh.peers, environment.rank == 0 ? links : channels),
      holders(size_t(environment.ranks)) {}

Status Reception::serve(Deadline until) {
  deadline = until;
  while (!isComplete() && std::chrono::steady_clock::now() < deadline)
    FSDPC_TRY(
        callers.await(deadline, -1, [this](Guest &&guest) { admit(guest); }));
  return {};
}

// Returns true if the rank has all its connections, those that have broken but
// were not noticed yet included.
bool Reception::isHere(int peer) const {
  return std::all_of(expected.begin(), expected.end(), [&](const auto &link) {
    return link[size_t(peer)].isOpen();
  });
}

// Returns true if all ranks are connected. A connection that broke meanwhile is
// dropped, and its rank may call again.
bool Reception::isComplete() {
  for (int peer = environment.rank + 1; peer < environment.ranks; ++peer)
    if (!isHere(peer))
      return false;
  bool complete = true;
  for (std::vector<Socket> &link : expected)
    for (size_t peer = size_t(environment.rank) + 1; peer < link.size(); ++peer)
      if (link[peer].isBroken()) {
        link[peer].close();
        complete = false;
        // If its process has ended nobody will call again, so the rest of the
        // time would be waited for in vain.
        deadline = std::min(deadline, inSeconds(returnSeconds));
      }
  return complete;
}

// Answers a greeting, and keeps the connection if it belongs here.
void Reception::admit(Guest &guest) {
  const Greeting &greeting = guest.greeting;
  // A rank that has met all others already, and calls again since a connection
  // has broken. It will try later.
  if (greeting.connection > 0)
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
  // A new process has the rank. Connections of the old one are broken, or
  // `judge` would have refused.
  if (holder.greeting.self != greeting.self)
    for (std::vector<Socket> &link : expected)
      link[rank].close(); // of a process that is gone
  holder.greeting = greeting;
  // Start is sent on this connection, so its seal needs these nonces.
  if (greeting.link == controlChannel)
    holder.control = guest.conversation;
  // What rank 0 has said of it stays.
  if (environment.rank == 0)
    mesh.members[rank] = {greeting.host, greeting.listener, greeting.self};
  mesh.peers[greeting.link][rank] = std::move(guest.socket);
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
  if (holders[rank].greeting.self != greeting.self)
    for (const std::vector<Socket> &link : expected)
      if (link[rank].isOpen() && !link[rank].isBroken())
        return Verdict::rankTaken;
  return Verdict::welcome;
}

// A failure is not reported here: the watch covers every rank from now on, and
// finds a rank that is gone by now.
void Reception::start(int peer, bool starts, Deadline until) {
  Socket &control = mesh.peers[controlChannel][size_t(peer)];
  if (!control.isOpen())
    return;
  Start word = {
      starts, listenerFor(control), digestOf(bytesOf(mesh.members)), {}};
  seal(word, holders[size_t(peer)].control);
  if (control.send(&word, sizeof word, until) && starts)
    (void)control.send(mesh.members.data(), bytesOf(mesh.members).size(),
                       until);
}

// Rank 0 gives the job's port back, and listens on another one of the address
// that the rank has reached it by. Without one, connections that break stay so.
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
  for (int peer = environment.rank + 1; peer < environment.ranks; ++peer)
    if (!isHere(peer) && ++count <= 8)
      names += concat(names.empty() ? "" : ", ", peer);
  if (count > 8)
    names += concat(" and ", count - 8, " more");
  return names.empty() ? names : (count > 1 ? "ranks " : "rank ") + names;
}

} // namespace fsdpc::runtime

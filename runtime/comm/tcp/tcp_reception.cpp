// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Listening sockets and callers are polled together. Callers are judged by what
// they prove, never by their address: a rank may sit behind another one than
// the launcher knows.
#include "runtime/comm/tcp/tcp_reception.h"

#include <algorithm>
#include <poll.h>

namespace fsdpc::runtime {

namespace {

constexpr double callerSeconds = 5;
// The time within which a rank whose connection broke must call again.
constexpr double returnSeconds = 10;

// Sends without waiting: the buffer of a new connection holds such a message.
template <typename Message>
Status send(Socket &socket, const Message &message) {
  return socket.send(&message, sizeof message,
                     std::chrono::steady_clock::now());
}

} // namespace

Reception::Reception(const LaunchEnvironment &environment, Mesh &mesh,
                     const std::vector<Socket> &listeners, const Bytes32 &key)
    : environment(environment), mesh(mesh), listeners(listeners), key(key),
      job(digestOf(environment.job)),
      // The watch is between rank 0 and each other rank.
      expected(mesh.peers, environment.rank == 0 ? links : channels),
      holders(size_t(environment.ranks)) {}

Status Reception::serve(Deadline until) {
  deadline = until;
  while (!isComplete() && std::chrono::steady_clock::now() < deadline)
    FSDPC_TRY(await());
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

// Waits until somebody calls or speaks, or a caller's time is over.
Status Reception::await() {
  std::vector<pollfd> entries;
  Deadline next = deadline;
  for (const Caller &caller : callers) {
    entries.push_back({caller.socket.descriptor(), POLLIN, 0});
    next = std::min(next, caller.deadline);
  }
  for (const Socket &listener : listeners)
    entries.push_back({listener.descriptor(), POLLIN, 0});
  if (poll(entries.data(), entries.size(), pollTimeout(next)) < 0)
    return {}; // a signal
  auto now = std::chrono::steady_clock::now();
  std::vector<Caller> waiting;
  // Caller i is entry i. New callers are accepted only after this loop, so
  // the indices stay right.
  for (size_t i = 0; i < callers.size(); ++i)
    if (now < callers[i].deadline && (!entries[i].revents || hear(callers[i])))
      waiting.push_back(std::move(callers[i]));
  callers = std::move(waiting);
  for (const Socket &listener : listeners)
    FSDPC_TRY(acceptAll(listener));
  return {};
}

// The oldest callers make room if there are more than any job has at once, or
// no descriptors are left: ranks speak at once, and strangers may not.
Status Reception::acceptAll(const Socket &listener) {
  for (;;) {
    Result<Socket> next = acceptFrom(listener, mesh.silence);
    if (!next && callers.empty())
      return next.error().reworded(
          "rank " + std::to_string(environment.rank) +
          " cannot accept a connection (" + next.error().message +
          "); raise the limit of open files (ulimit -n)");
    // Evicts the oldest one, either to make room or to free a descriptor for
    // the connection that could not be accepted; in that case it tries again.
    if (!next || callers.size() > size_t(environment.ranks) + 64)
      callers.erase(callers.begin());
    if (!next)
      continue;
    if (!next->isOpen())
      return {};
    Caller caller;
    caller.socket = std::move(*next);
    caller.deadline = inSeconds(callerSeconds);
    callers.push_back(std::move(caller));
  }
}

// Reads what there is. Returns false once the caller is admitted or turned
// away.
bool Reception::hear(Caller &caller) {
  Result<size_t> got = caller.socket.receiveSome(
      caller.bytes.data() + caller.filled, caller.wanted() - caller.filled);
  // A caller that hangs up at the challenge most likely knows another secret.
  // One that never said Hello may be a port scanner and does not count.
  if (!got) {
    turnedAway += caller.challenged;
    return false;
  }
  caller.filled += *got;
  if (caller.filled < caller.wanted())
    return true;
  if (!caller.challenged)
    return challenge(caller);
  admit(caller);
  return false;
}

// Answers a Hello with this rank's own proof, and expects a Greeting next.
// Returns false if the caller is to be dropped.
bool Reception::challenge(Caller &caller) {
  std::optional<Hello> hello = parseHello(caller.message());
  if (!hello)
    return false;
  caller.conversation = {key, hello->nonce, randomBytes()};
  Challenge reply = {protocol, caller.conversation.host, {}};
  seal(reply, caller.conversation);
  caller.challenged = true;
  caller.filled = 0;
  return bool(send(caller.socket, reply));
}

// Answers a greeting, and keeps the connection if it belongs here.
void Reception::admit(Caller &caller) {
  std::optional<Greeting> greeting =
      parseGreeting(caller.message(), caller.conversation);
  if (!greeting) {
    ++turnedAway;
    return;
  }
  Answer reply = {judge(*greeting), 0, {}, {}};
  if (reply.verdict == Verdict::rankTaken) {
    const Greeting &holder = holders[size_t(greeting->rank)].greeting;
    reply.process = holder.process;
    reply.host = holder.host;
  }
  seal(reply, caller.conversation);
  if (!send(caller.socket, reply) || reply.verdict != Verdict::welcome)
    return;
  size_t rank = size_t(greeting->rank);
  Holder &holder = holders[rank];
  // A new process has the rank. Connections of the old one are broken, or
  // `judge` would have refused.
  if (holder.greeting.self != greeting->self)
    for (std::vector<Socket> &link : expected)
      link[rank].close(); // of a process that is gone
  holder.greeting = *greeting;
  // Start is sent on this connection, so its seal needs these nonces.
  if (greeting->link == controlChannel)
    holder.control = caller.conversation;
  mesh.members[rank] = {greeting->host, greeting->listener};
  mesh.peers[greeting->link][rank] = std::move(caller.socket);
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
  Start word = {starts, digestOf(bytesOf(mesh.members)), {}};
  seal(word, holders[size_t(peer)].control);
  if (control.send(&word, sizeof word, until) && starts)
    (void)control.send(mesh.members.data(), bytesOf(mesh.members).size(),
                       until);
}

std::string Reception::missing() const {
  std::string names;
  int count = 0;
  for (int peer = environment.rank + 1; peer < environment.ranks; ++peer)
    if (!isHere(peer) && ++count <= 8)
      names += (names.empty() ? "" : ", ") + std::to_string(peer);
  if (count > 8)
    names += " and " + std::to_string(count - 8) + " more";
  return names.empty() ? names : (count > 1 ? "ranks " : "rank ") + names;
}

} // namespace fsdpc::runtime

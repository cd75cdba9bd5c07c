// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Listening sockets and callers are polled together. Callers are judged by what
// they prove, never by their address: a rank may sit behind another one than
// the launcher knows.
#include "runtime/comm/tcp/tcp_callers.h"

#include "runtime/support/concat.h"

#include <algorithm>
#include <poll.h>

namespace fsdpc::runtime {

namespace {

constexpr double callerSeconds = 5;

} // namespace

Status Callers::await(Deadline deadline, int event,
                      const std::function<void(Guest &&)> &admit) {
  std::vector<pollfd> entries;
  Deadline next = deadline;
  for (const Caller &caller : callers) {
    entries.push_back({caller.socket.descriptor(), POLLIN, 0});
    next = std::min(next, caller.deadline);
  }
  for (const Socket &listener : listeners)
    entries.push_back({listener.descriptor(), POLLIN, 0});
  entries.push_back({event, POLLIN, 0});
  if (poll(entries.data(), entries.size(), pollTimeout(next)) < 0)
    return {}; // a signal
  auto now = std::chrono::steady_clock::now();
  std::vector<Caller> waiting;
  // Caller i is entry i. New callers are accepted only after this loop, so
  // the indices stay right.
  for (size_t i = 0; i < callers.size(); ++i)
    if (now < callers[i].deadline &&
        (!entries[i].revents || hear(callers[i], admit)))
      waiting.push_back(std::move(callers[i]));
  callers = std::move(waiting);
  for (const Socket &listener : listeners)
    FSDPC_TRY(acceptAll(listener));
  return {};
}

// The oldest callers make room if there are more than any job has at once, or
// no descriptors are left: ranks speak at once, and strangers may not.
Status Callers::acceptAll(const Socket &listener) {
  for (;;) {
    Result<Socket> next = acceptFrom(listener, silence);
    if (!next && callers.empty())
      return next.error().reworded(concat(
          "rank ", rank, " cannot accept a connection (", next.error().message,
          "); raise the limit of open files (ulimit -n)"));
    // Evicts the oldest one, either to make room or to free a descriptor for
    // the connection that could not be accepted; in that case it tries again.
    if (!next || callers.size() > most)
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
bool Callers::hear(Caller &caller, const std::function<void(Guest &&)> &admit) {
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
  if (std::optional<Greeting> greeting =
          parseGreeting(caller.message(), caller.conversation))
    admit({std::move(caller.socket), caller.conversation, *greeting});
  else
    ++turnedAway;
  return false;
}

// Answers a Hello with this rank's own proof, and expects a Greeting next.
// Returns false if the caller is to be dropped.
bool Callers::challenge(Caller &caller) {
  std::optional<Hello> hello = parseHello(caller.message());
  if (!hello)
    return false;
  caller.conversation = {key, hello->nonce, randomBytes()};
  Challenge reply = {protocol, caller.conversation.host, {}};
  seal(reply, caller.conversation);
  caller.challenged = true;
  caller.filled = 0;
  return bool(sendAtOnce(caller.socket, reply));
}

} // namespace fsdpc::runtime

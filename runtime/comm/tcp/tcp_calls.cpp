// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/tcp/tcp_calls.h"
#include "runtime/comm/tcp/tcp_callers.h"

#include <algorithm>

namespace fsdpc::runtime {

void Calls::begin(const Greeting &greeting, const Endpoint &place) {
  Call call = {greeting, {key, randomBytes(), {}}, {}, inSeconds(seconds)};
  Result<Socket> made = startConnecting(place, silence, own);
  if (made) {
    call.socket = std::move(*made);
    calls.push_back(std::move(call));
  } else {
    ended(call, {{},
                 isRefusal(made.error()),
                 isLackOfDescriptors(made.error()),
                 made.error().message});
  }
}

bool Calls::isCalling(int link, int peer) const {
  return std::any_of(calls.begin(), calls.end(), [&](const Call &call) {
    return call.greeting.link == link && call.greeting.to == peer;
  });
}

Deadline Calls::next() const {
  Deadline first = never;
  for (const Call &call : calls)
    first = std::min(first, call.deadline);
  return first;
}

void Calls::addTo(std::vector<pollfd> &entries) const {
  for (const Call &call : calls)
    entries.push_back({call.socket.descriptor(),
                       short(call.stage == Call::connecting ? POLLOUT : POLLIN),
                       0});
}

void Calls::advance(std::span<const pollfd> entries) {
  auto now = std::chrono::steady_clock::now();
  std::vector<Call> under = std::move(calls);
  calls.clear();
  for (size_t i = 0; i < under.size(); ++i) {
    End end = {{}, false, false, "no answer"};
    bool goesOn = now < under[i].deadline;
    if (entries[i].revents)
      goesOn = step(under[i], end) && goesOn;
    if (goesOn)
      calls.push_back(std::move(under[i]));
    else
      ended(under[i], end);
  }
}

// Does what can be done without waiting. Returns false once the call has ended.
bool Calls::step(Call &call, End &end) {
  if (call.stage == Call::connecting) {
    if (Status made = call.socket.connected(); !made) {
      end.isRefused = isRefusal(made.error());
      end.why = made.error().message;
      return false;
    }
    call.stage = Call::saidHello;
    return bool(
        sendAtOnce(call.socket, Hello{protocol, call.conversation.caller}));
  }
  bool isAnswer = call.stage == Call::greeted;
  size_t wanted = isAnswer ? sizeof(Answer) : sizeof(Challenge);
  if (!hear(call, wanted))
    return false;
  if (call.filled < wanted)
    return true;
  std::span<const uint8_t> message = {call.bytes.data(), wanted};
  if (isAnswer) {
    end.answer = parseAnswer(message, call.conversation);
    return false;
  }
  if (!parseChallenge(message, call.conversation))
    return false;
  seal(call.greeting, call.conversation);
  call.stage = Call::greeted;
  call.filled = 0;
  return bool(sendAtOnce(call.socket, call.greeting));
}

// Returns false if the other end has broken the call off. Nothing behind the
// message is read, which may belong to the link.
bool Calls::hear(Call &call, size_t bytes) {
  Result<size_t> got = call.socket.receiveSome(call.bytes.data() + call.filled,
                                               bytes - call.filled);
  if (!got)
    return false;
  call.filled += *got;
  return true;
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The listening side of the conversation (wire.h): accepts, challenges and
// hears greetings. Anybody can call a port, so a caller is given five seconds
// from its connection to its greeting, and no other caller waits for it. Until
// its seal has proved right, only a fixed number of its bytes are looked at.
#pragma once

#include "runtime/comm/socket.h"
#include "runtime/comm/wire.h"

#include <functional>
#include <vector>

namespace fsdpc::runtime {

/// A caller that has proved to know the job's key. What it says of itself may
/// still be wrong.
struct Guest {
  Socket socket;
  Conversation conversation;
  Greeting greeting;
};

/// Sends without waiting: the buffer of a new connection holds such a message.
template <typename Message>
Status sendAtOnce(Socket &socket, const Message &message) {
  return socket.send(&message, sizeof message,
                     std::chrono::steady_clock::now());
}

/// For one thread. All references must outlive it.
class Callers {
public:
  /// `rank` is this rank, for error messages. Keeps up to `ranks` + 64 callers:
  /// ranks call at different times, and strangers may call too. socket.h
  /// describes `silence`.
  Callers(int rank, int ranks, double silence,
          const std::vector<Socket> &listeners, const Bytes32 &key)
      : rank(rank), most(size_t(ranks) + 64), silence(silence),
        listeners(listeners), key(key) {}

  /// Waits until somebody calls or speaks, `event` (a descriptor, or -1) can be
  /// read, or the deadline has passed. Hands each guest to `admit`. Fails if no
  /// connection can be accepted.
  Status await(Deadline deadline, int event,
               const std::function<void(Guest &&)> &admit);
  /// Callers that did not know the key.
  int strangers() const { return turnedAway; }

private:
  /// A connection whose end is not known to be a rank yet.
  struct Caller {
    Socket socket;
    Deadline deadline;
    Conversation conversation;
    bool challenged = false;
    size_t filled = 0;
    std::array<uint8_t, sizeof(Greeting)> bytes = {};

    /// Bytes of the message that the caller is to send next.
    size_t wanted() const {
      return challenged ? sizeof(Greeting) : sizeof(Hello);
    }
    std::span<const uint8_t> message() const { return {bytes.data(), filled}; }
  };

  Status acceptAll(const Socket &listener);
  bool hear(Caller &caller, const std::function<void(Guest &&)> &admit);
  bool challenge(Caller &caller);

  const int rank;
  const size_t most;
  const double silence;
  const std::vector<Socket> &listeners;
  const Bytes32 &key;
  std::vector<Caller> callers;
  int turnedAway = 0;
};

} // namespace fsdpc::runtime

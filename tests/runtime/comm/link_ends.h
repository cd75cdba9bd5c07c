// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the tests of links and menders share: connections of this process, and
// one end of an exchange.
#pragma once

#include "runtime/comm/tcp/tcp_link.h"

#include <algorithm>
#include <netinet/in.h>
#include <random>
#include <sys/socket.h>

namespace fsdpc::runtime::testing {

constexpr double patience = 60; ///< seconds; the machine may be busy

inline Endpoint loopback() {
  Endpoint place;
  place.family = AF_INET;
  place.address = {127, 0, 0, 1};
  return place;
}

/// Both ends of a new connection.
inline std::pair<Socket, Socket> connectionOf(const Socket &listener) {
  auto place = listener.ownEndpoint();
  Socket one = std::move(*connectTo(*place, inSeconds(patience), 0));
  for (;;)
    if (auto other = acceptFrom(listener, 0); other && other->isOpen())
      return {std::move(one), std::move(*other)};
}

/// Its other end reads an error, after what was sent.
inline void reset(Socket &socket) {
  linger now = {1, 0};
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  socket.close();
}

inline std::string noise(size_t bytes, unsigned seed) {
  std::mt19937 numbers(seed);
  std::string text(bytes, '\0');
  for (char &c : text)
    c = char(numbers());
  return text;
}

/// One end of an exchange: sends messages, and receives as many bytes as the
/// other end sends.
struct End {
  explicit End(std::vector<std::string> messages, size_t incoming)
      : messages(std::move(messages)), got(incoming, '\0') {}

  /// Returns true once everything was sent and received.
  bool step(Link &link) {
    if (at < messages.size() && !sending) {
      std::string &text = messages[at];
      size_t half = text.size() / 2;
      link.beginMessage({iovec{text.data(), half},
                         iovec{text.data() + half, text.size() - half}});
      sending = true;
    }
    if (sending) {
      link.push();
      if (link.isPushed()) {
        link.endMessage();
        // As a caller does with its buffer.
        std::fill(messages[at].begin(), messages[at].end(), '?');
        ++at;
        sending = false;
      }
    } else {
      link.push(); // what is kept
    }
    taken += link.receive(
        std::array{iovec{got.data() + taken, got.size() - taken}, iovec{}});
    return at == messages.size() && taken == got.size() &&
           !link.state().mustPush;
  }

  std::vector<std::string> messages;
  std::string got;
  size_t at = 0, taken = 0;
  bool sending = false;
};

} // namespace fsdpc::runtime::testing

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// TCP connections with deadlines. Every wait sleeps in poll until there is
// something to do or the deadline passes. Errors name no rank, since only the
// caller knows which one it was talking to.
#pragma once

#include "runtime/support/status.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <sys/uio.h>
#include <vector>

namespace fsdpc::runtime {

using Deadline = std::chrono::steady_clock::time_point;
/// For transfers between ranks, where another thread watches for lost ranks.
constexpr Deadline never = Deadline::max();
Deadline inSeconds(double seconds);
/// Milliseconds until `deadline` for poll(): rounded up, -1 for `never`.
int pollTimeout(Deadline deadline);

/// An address and a port as numbers, in a form that can be sent. All zero:
/// none.
struct Endpoint {
  int32_t family = 0; ///< AF_INET or AF_INET6
  int32_t port = 0;
  std::array<uint8_t, 16> address = {}; ///< of IPv4 only the first four bytes
};
/// Returns the address alone: "10.0.0.2".
std::string addressText(const Endpoint &endpoint);
/// Returns the text for messages: "'10.0.0.2' port 4711".
std::string textOf(const Endpoint &endpoint);

/// Owns one socket, listening or connected.
class Socket {
public:
  Socket() = default;
  explicit Socket(int file) : file(file) {}
  Socket(Socket &&other) noexcept;
  Socket &operator=(Socket &&other) noexcept;
  ~Socket() { close(); }

  bool isOpen() const { return file >= 0; }
  int descriptor() const { return file; }
  void close();

  /// Transfer all bytes.
  Status send(const void *data, size_t bytes, Deadline deadline);
  Status receive(void *data, size_t bytes, Deadline deadline);
  /// Returns how many bytes could be received without waiting, which may be
  /// none. Fails if the connection was closed.
  Result<size_t> receiveSome(void *data, size_t bytes);
  /// Sends, or receives, the two ranges one after the other, as far as possible
  /// without waiting. Returns the number of bytes, which may be 0.
  Result<size_t> sendSome(std::span<const iovec, 2> ranges);
  Result<size_t> receiveSome(std::span<const iovec, 2> ranges);
  /// The address and port of this end. Fails only for a closed socket.
  Result<Endpoint> ownEndpoint() const;
  /// Returns an error if the connection that startConnecting() began has
  /// failed.
  Status connected() const;
  /// Returns true if the other end has closed the connection or was lost.
  bool isBroken() const;

private:
  Status wait(short events, Deadline deadline);
  template <typename Step>
  Status transfer(size_t bytes, short events, Deadline deadline, Step &&step);
  int file = -1;
};

/// Listens on `port` of this machine's addresses that `address` names, and of
/// no others. There is one socket per address, at least one.
Result<std::vector<Socket>> listenOn(const std::string &address, int port);
/// Listens on that address only; port 0 lets the system choose one.
Result<Socket> listenOn(const Endpoint &endpoint);
/// Returns the next waiting connection, or a closed socket if there is none.
/// Does not block. Fails if the process or the machine has no descriptor left
/// for it. `silence`: see connectTo.
Result<Socket> acceptFrom(const Socket &listener, double silence);
/// Returns true if a listening socket can only be reached from this machine.
bool isLoopback(const Socket &listener);
/// Returns true if all addresses of the name are this machine's loopback.
bool isLoopback(const std::string &address);
/// Returns true for the error of a connection that nobody listens for.
bool isRefusal(const Error &error);
/// Returns true for the error of a process or machine that may open no more
/// files.
bool isLackOfDescriptors(const Error &error);
/// Tries each address of the name once, from one of the addresses `own`, or, if
/// there are none, from the one that the system chooses. The connection breaks
/// when the other machine has not answered the kernel for `silence` seconds; 0:
/// when the system gives up, which takes Linux about 15 minutes, and never
/// while nothing is sent.
Result<Socket> connectTo(const std::string &address, int port,
                         Deadline deadline, double silence,
                         std::span<const Endpoint> own = {});
Result<Socket> connectTo(const Endpoint &endpoint, Deadline deadline,
                         double silence, std::span<const Endpoint> own = {});
/// Begins to connect and does not wait. The socket's descriptor can be written
/// to once the connection is made or has failed; connected() says which.
Result<Socket> startConnecting(const Endpoint &endpoint, double silence,
                               std::span<const Endpoint> own = {});

} // namespace fsdpc::runtime

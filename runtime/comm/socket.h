// TCP connections with deadlines. Every wait sleeps in poll until there is
// something to do or the deadline passes. Errors name no rank, since only the
// caller knows which one it was talking to.
#pragma once

#include "shared/status.h"

#include <chrono>
#include <cstddef>
#include <string>

namespace fsdpc::runtime {

using Deadline = std::chrono::steady_clock::time_point;
// For transfers between ranks, where another thread watches for lost ranks.
constexpr Deadline never = Deadline::max();
Deadline inSeconds(double seconds);
// Milliseconds until `deadline` for poll(): rounded up, -1 for `never`.
int pollTimeout(Deadline deadline);

// The text of an errno value.
std::string systemError(int code);

// Owns one socket, listening or connected.
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

  // Transfer all bytes.
  Status send(const void *data, size_t bytes, Deadline deadline);
  Status receive(void *data, size_t bytes, Deadline deadline);

private:
  Status wait(short events, Deadline deadline);
  template <typename Step>
  Status transfer(size_t bytes, short events, Deadline deadline, Step &&step);
  int file = -1;
};

// Listens on `port` of every interface, or only of the loopback if `address`
// names it.
Result<Socket> listenOn(const std::string &address, int port);
// Returns the next waiting connection, or a closed socket if there is none.
// Does not block.
Socket acceptFrom(const Socket &listener);
// Tries each address of the name once.
Result<Socket> connectTo(const std::string &address, int port,
                         Deadline deadline);

} // namespace fsdpc::runtime

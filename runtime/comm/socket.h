// TCP connections with deadlines. Every wait sleeps in poll until there is
// something to do or the deadline passes. Errors name no rank, since only the
// caller knows which one it was talking to.
#pragma once

#include "shared/status.h"

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

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
  // Returns how many bytes could be received without waiting, which may be
  // none. Fails if the connection was closed.
  Result<size_t> receiveSome(void *data, size_t bytes);
  // Returns true if the other end has closed the connection or was lost.
  bool isBroken() const;

private:
  Status wait(short events, Deadline deadline);
  template <typename Step>
  Status transfer(size_t bytes, short events, Deadline deadline, Step &&step);
  int file = -1;
};

// Listens on `port` of this machine's addresses that `address` names, and of no
// others. There is one socket per address, at least one.
Result<std::vector<Socket>> listenOn(const std::string &address, int port);
// Returns the next waiting connection, or a closed socket if there is none.
// Does not block. Fails if the process or the machine has no descriptor left
// for it.
Result<Socket> acceptFrom(const Socket &listener);
// Returns true if a listening socket can only be reached from this machine.
bool isLoopback(const Socket &listener);
// Tries each address of the name once.
Result<Socket> connectTo(const std::string &address, int port,
                         Deadline deadline);

} // namespace fsdpc::runtime

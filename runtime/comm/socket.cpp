// All sockets are nonblocking and closed on exec, so that a rank can neither
// hang in a system call nor leave a connection to a child process. A transfer
// tries the system call first and polls only if it would block.
#include "runtime/comm/socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace fsdpc::runtime {

namespace {

void set(int file, int level, int option, int value) {
  setsockopt(file, level, option, &value, sizeof value);
}

// Sends small messages at once, and detects a lost machine within half a
// minute.
void prepare(int file) {
  set(file, IPPROTO_TCP, TCP_NODELAY, 1);
  set(file, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(file, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(file, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(file, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(file, IPPROTO_TCP, TCP_USER_TIMEOUT, 30000);
}

bool isLoopback(const std::string &address) {
  return address == "localhost" || address == "::1" ||
         address.rfind("127.", 0) == 0;
}

} // namespace

std::string systemError(int code) {
  char text[128];
  // GNU's variant, which returns the text.
  return strerror_r(code, text, sizeof text);
}

Deadline inSeconds(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::milliseconds(int64_t(seconds * 1000));
}

int pollTimeout(Deadline deadline) {
  if (deadline == never)
    return -1;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return int(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

Socket::Socket(Socket &&other) noexcept : file(std::exchange(other.file, -1)) {}

Socket &Socket::operator=(Socket &&other) noexcept {
  std::swap(file, other.file);
  return *this;
}

void Socket::close() {
  if (file >= 0)
    ::close(file);
  file = -1;
}

// A signal does not end the wait; the deadline still holds.
Status Socket::wait(short events, Deadline deadline) {
  pollfd entry = {file, events, 0};
  int ready;
  do
    ready = poll(&entry, 1, pollTimeout(deadline));
  while (ready < 0 && errno == EINTR);
  if (ready < 0)
    return Error{systemError(errno)};
  if (ready == 0)
    return Error{"timed out"};
  return {};
}

// step(done) transfers some of the bytes from position `done` on, and returns
// what send() or recv() returned.
template <typename Step>
Status Socket::transfer(size_t bytes, short events, Deadline deadline,
                        Step &&step) {
  for (size_t done = 0; done < bytes;) {
    ssize_t count = step(done);
    if (count > 0) {
      done += size_t(count);
      continue;
    }
    if (count == 0)
      return Error{"the connection was closed"};
    if (errno != EAGAIN && errno != EINTR)
      return Error{systemError(errno)};
    FSDPC_TRY(wait(events, deadline));
  }
  return {};
}

Status Socket::send(const void *data, size_t bytes, Deadline deadline) {
  return transfer(bytes, POLLOUT, deadline, [&](size_t done) {
    return ::send(file, static_cast<const char *>(data) + done, bytes - done,
                  MSG_NOSIGNAL);
  });
}

Status Socket::receive(void *data, size_t bytes, Deadline deadline) {
  return transfer(bytes, POLLIN, deadline, [&](size_t done) {
    return recv(file, static_cast<char *>(data) + done, bytes - done, 0);
  });
}

Result<Socket> listenOn(const std::string &address, int port) {
  bool loopback = isLoopback(address);
  int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  sockaddr_in6 wide = {};
  wide.sin6_family = AF_INET6;
  wide.sin6_addr = address == "::1" ? in6addr_loopback : in6addr_any;
  wide.sin6_port = htons(uint16_t(port));
  sockaddr_in plain = {};
  plain.sin_family = AF_INET;
  plain.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
  plain.sin_port = htons(uint16_t(port));
  // One IPv6 socket serves both families if the machine has IPv6.
  bool useWide = !loopback || address == "::1";
  int file = useWide ? socket(AF_INET6, type, 0) : -1;
  if (file >= 0)
    set(file, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  else if ((file = socket(AF_INET, type, 0)) < 0)
    return Error{systemError(errno)};
  else
    useWide = false;
  Socket listener(file);
  set(file, SOL_SOCKET, SO_REUSEADDR, 1);
  auto *name = useWide ? reinterpret_cast<const sockaddr *>(&wide)
                       : reinterpret_cast<const sockaddr *>(&plain);
  if (bind(file, name, useWide ? sizeof wide : sizeof plain) ||
      listen(file, SOMAXCONN))
    return Error{systemError(errno)};
  return listener;
}

Socket acceptFrom(const Socket &listener) {
  int file = accept4(listener.descriptor(), nullptr, nullptr,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (file >= 0)
    prepare(file);
  return Socket(file);
}

Result<Socket> connectTo(const std::string &address, int port,
                         Deadline deadline) {
  addrinfo hints = {}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  int code =
      getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code)
    return Error{gai_strerror(code)};
  std::unique_ptr<addrinfo, void (*)(addrinfo *)> owner(list, freeaddrinfo);
  Error error = {"the host name does not resolve"};
  for (addrinfo *at = list; at; at = at->ai_next) {
    int file =
        socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
               at->ai_protocol);
    if (file < 0) {
      error = {systemError(errno)};
      continue;
    }
    Socket attempt(file);
    prepare(file);
    int status = connect(file, at->ai_addr, at->ai_addrlen) ? errno : 0;
    if (status == EINPROGRESS) {
      pollfd entry = {file, POLLOUT, 0};
      socklen_t length = sizeof status;
      if (poll(&entry, 1, pollTimeout(deadline)) <= 0)
        status = ETIMEDOUT;
      else
        getsockopt(file, SOL_SOCKET, SO_ERROR, &status, &length);
    }
    if (status == 0)
      return attempt;
    error = {systemError(status)};
  }
  return error;
}

} // namespace fsdpc::runtime

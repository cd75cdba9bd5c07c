// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All sockets are nonblocking and closed on exec, so that a rank can neither
// hang in a system call nor leave a connection to a child process. A transfer
// tries the system call first and polls only if it would block.
#include "runtime/comm/socket.h"
#include "runtime/support/concat.h"
#include "runtime/support/system_error.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace fsdpc::runtime {

namespace {

// Ignores failures: every option that is set only improves a connection that
// works without it.
void set(int file, int level, int option, int value) {
  setsockopt(file, level, option, &value, sizeof value);
}

// Sends small messages at once, and gives up a machine that has not answered
// for `silence` seconds. The user timeout decides for data that are not
// acknowledged, and also when probes on an idle connection are not.
void prepare(int file, double silence) {
  set(file, IPPROTO_TCP, TCP_NODELAY, 1);
  if (silence <= 0)
    return;
  // The kernel takes at most so many seconds between two probes.
  constexpr double mostPause = 32767, mostMilliseconds = INT_MAX;
  int pause = int(std::clamp(silence / 4, 1., mostPause));
  set(file, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(file, IPPROTO_TCP, TCP_KEEPIDLE, pause);
  set(file, IPPROTO_TCP, TCP_KEEPINTVL, pause);
  set(file, IPPROTO_TCP, TCP_USER_TIMEOUT,
      int(std::min(std::ceil(silence * 1000), mostMilliseconds)));
}

// The addresses of a name. `code` is not 0 if it does not resolve. Owns the
// list of getaddrinfo.
struct Addresses {
  Addresses(const std::string &name, int port) {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    code =
        getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &first);
  }
  Addresses(const Addresses &) = delete;
  Addresses &operator=(const Addresses &) = delete;
  ~Addresses() {
    if (code == 0)
      freeaddrinfo(first);
  }
  // Why the name does not resolve. A name server that does not answer now may
  // answer later.
  Error error() const {
    return code == EAI_AGAIN || code == EAI_MEMORY || code == EAI_SYSTEM
               ? machineError(gai_strerror(code))
               : inputError(gai_strerror(code));
  }

  int code;
  addrinfo *first = nullptr;
};

// Returns the error of a call on a connection or a listener, by errno. Lack of
// descriptors or memory is the run's own; anything else that may pass is the
// link's or the other machine's.
Error linkError(int code) {
  Error error = systemError(code);
  bool isOwn = code == EMFILE || code == ENFILE || code == ENOMEM;
  return error.code() == ExitCode::runFailed && !isOwn
             ? machineError(error.message)
             : error;
}

// An address in the form that system calls take.
struct Name {
  sockaddr_storage storage = {};
  socklen_t length = sizeof storage;

  Name() = default;
  explicit Name(const addrinfo &info) : length(info.ai_addrlen) {
    memcpy(&storage, info.ai_addr, info.ai_addrlen);
  }
  explicit Name(const Endpoint &endpoint) {
    storage.ss_family = sa_family_t(endpoint.family);
    if (endpoint.family == AF_INET6) {
      auto &name = reinterpret_cast<sockaddr_in6 &>(storage);
      name.sin6_port = htons(uint16_t(endpoint.port));
      memcpy(&name.sin6_addr, endpoint.address.data(), 16);
      length = sizeof name;
    } else {
      auto &name = reinterpret_cast<sockaddr_in &>(storage);
      name.sin_port = htons(uint16_t(endpoint.port));
      memcpy(&name.sin_addr, endpoint.address.data(), 4);
      length = sizeof name;
    }
  }
  int family() const { return storage.ss_family; }
  sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); }
};

Socket socketFor(int family) {
  return Socket(
      socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

// Returns an error number, 0 if the socket listens on the name.
int listenOn(Socket &listener, Name &name) {
  int file = listener.descriptor();
  // A socket on "::" would otherwise take the IPv4 port too, and the bind for
  // the name's IPv4 address would fail.
  if (name.family() == AF_INET6)
    set(file, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  // Without it the port stays taken for a minute after the previous job.
  set(file, SOL_SOCKET, SO_REUSEADDR, 1);
  bool listens =
      bind(file, name.get(), name.length) == 0 && listen(file, SOMAXCONN) == 0;
  return listens ? 0 : errno;
}

// Gives a socket the first of the addresses that has its family. Returns an
// error number, or 0.
int bindTo(std::span<const Endpoint> own, int file, int family) {
  if (own.empty())
    return 0;
  for (const Endpoint &each : own)
    if (each.family == family) {
      Name name(each);
      return bind(file, name.get(), name.length) ? errno : 0;
    }
  return EAFNOSUPPORT;
}

bool isLoopback(const sockaddr *name) {
  if (name->sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(
        &reinterpret_cast<const sockaddr_in6 *>(name)->sin6_addr);
  // All of 127.0.0.0/8.
  return ntohl(reinterpret_cast<const sockaddr_in *>(name)->sin_addr.s_addr) >>
             24 ==
         IN_LOOPBACKNET;
}

// Returns an error number: 0 if the socket is connected, EINPROGRESS if that
// may follow.
int startConnecting(Socket &attempt, Name &name, double silence,
                    std::span<const Endpoint> own) {
  int file = attempt.descriptor();
  if (file < 0)
    return errno; // of socket()
  prepare(file, silence);
  if (int status = bindTo(own, file, name.family()))
    return status;
  return connect(file, name.get(), name.length) ? errno : 0;
}

// Returns an error number. A nonblocking socket becomes writable when the
// connection is made or has failed, and SO_ERROR says which.
int errorOf(int file) {
  int status = 0;
  socklen_t length = sizeof status;
  return getsockopt(file, SOL_SOCKET, SO_ERROR, &status, &length) ? errno
                                                                  : status;
}

// Returns an error number, 0 if the socket is connected.
int connectTo(Socket &attempt, Name &name, Deadline deadline, double silence,
              std::span<const Endpoint> own) {
  int status = startConnecting(attempt, name, silence, own);
  if (status != EINPROGRESS)
    return status;
  pollfd entry = {attempt.descriptor(), POLLOUT, 0};
  if (poll(&entry, 1, pollTimeout(deadline)) <= 0)
    return ETIMEDOUT;
  return errorOf(attempt.descriptor());
}

// Returns what a nonblocking call moved. `none` says why it can be nothing.
Result<size_t> moved(ssize_t count, const char *none) {
  if (count > 0)
    return size_t(count);
  if (count < 0 && (errno == EAGAIN || errno == EINTR))
    return size_t(0);
  return count ? linkError(errno) : machineError(none);
}

msghdr messageOf(std::span<const iovec, 2> ranges) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec *>(ranges.data());
  message.msg_iovlen = ranges.size();
  return message;
}

} // namespace

// In whole milliseconds, as poll() counts.
Deadline inSeconds(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::milliseconds(int64_t(seconds * 1000));
}

int pollTimeout(Deadline deadline) {
  if (deadline == never)
    return -1;
  // Rounded up: a remainder below one millisecond would become 0, and the
  // caller would spin until the deadline.
  auto left = std::chrono::ceil<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return int(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

Socket::Socket(Socket &&other) noexcept : file(std::exchange(other.file, -1)) {}

// Swaps, so `other` closes what this one held.
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
    return linkError(errno);
  if (ready == 0)
    return machineError("timed out");
  return {};
}

// step(done) transfers some of the bytes from position `done` on, and returns
// what send() or recv() returned. The deadline counts only while the call has
// to wait. With the deadline in the past, data that the kernel can take at once
// still goes through.
template <typename Step>
Status Socket::transfer(size_t bytes, short events, Deadline deadline,
                        Step &&step) {
  for (size_t done = 0; done < bytes;) {
    ssize_t count = step(done);
    if (count > 0) {
      done += size_t(count);
      continue;
    }
    // recv() returns 0 at the end of the stream; send() of at least one byte
    // never does.
    if (count == 0)
      return machineError("the connection was closed");
    if (errno != EAGAIN && errno != EINTR)
      return linkError(errno);
    FSDPC_TRY(wait(events, deadline));
  }
  return {};
}

Status Socket::send(const void *data, size_t bytes, Deadline deadline) {
  // MSG_NOSIGNAL: a closed connection is an error here, not a SIGPIPE.
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

Result<size_t> Socket::receiveSome(void *data, size_t bytes) {
  return moved(recv(file, data, bytes, 0), "the connection was closed");
}

Result<size_t> Socket::sendSome(std::span<const iovec, 2> ranges) {
  msghdr message = messageOf(ranges);
  return moved(sendmsg(file, &message, MSG_NOSIGNAL), "nothing was sent");
}

Result<size_t> Socket::receiveSome(std::span<const iovec, 2> ranges) {
  msghdr message = messageOf(ranges);
  return moved(recvmsg(file, &message, 0), "the connection was closed");
}

Result<Endpoint> Socket::ownEndpoint() const {
  Name name;
  if (getsockname(file, name.get(), &name.length))
    return linkError(errno);
  Endpoint endpoint;
  endpoint.family = name.family();
  if (endpoint.family == AF_INET6) {
    auto &own = reinterpret_cast<const sockaddr_in6 &>(name.storage);
    endpoint.port = ntohs(own.sin6_port);
    memcpy(endpoint.address.data(), &own.sin6_addr, 16);
  } else {
    auto &own = reinterpret_cast<const sockaddr_in &>(name.storage);
    endpoint.port = ntohs(own.sin_port);
    memcpy(endpoint.address.data(), &own.sin_addr, 4);
  }
  return endpoint;
}

// Bytes that are not an address read as an address of IPv4.
std::string addressText(const Endpoint &endpoint) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(endpoint.family == AF_INET6 ? AF_INET6 : AF_INET,
            endpoint.address.data(), text, sizeof text);
  return text;
}

std::string textOf(const Endpoint &endpoint) {
  return concat("'", addressText(endpoint), "' port ", endpoint.port);
}

Status Socket::connected() const {
  if (int status = errorOf(file))
    return linkError(status);
  return {};
}

// Peeks, so that a byte that has arrived stays for the next receive.
bool Socket::isBroken() const {
  char next;
  ssize_t count = recv(file, &next, 1, MSG_PEEK);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

// A name may have addresses of other machines, such as those of a service that
// forwards to this one. They are passed over if there is one of this machine.
Result<std::vector<Socket>> listenOn(const std::string &address, int port) {
  Addresses addresses(address, port);
  if (addresses.code)
    return addresses.error();
  std::vector<Socket> listeners;
  int foreign = EADDRNOTAVAIL;
  for (addrinfo *at = addresses.first; at; at = at->ai_next) {
    Socket listener = socketFor(at->ai_family);
    if (!listener.isOpen()) {
      foreign = errno; // a machine without this family
      continue;
    }
    Name name(*at);
    int status = listenOn(listener, name);
    if (status == 0) {
      listeners.push_back(std::move(listener));
      continue;
    }
    // Fails even if another address works: ranks would reach different
    // processes by the same name.
    if (status != EADDRNOTAVAIL)
      return linkError(status);
  }
  if (listeners.empty())
    return linkError(foreign);
  return listeners;
}

Result<Socket> listenOn(const Endpoint &endpoint) {
  Name name(endpoint);
  Socket listener = socketFor(name.family());
  int status = listener.isOpen() ? listenOn(listener, name) : errno;
  if (status != 0)
    return linkError(status);
  return listener;
}

Result<Socket> acceptFrom(const Socket &listener, double silence) {
  int file = accept4(listener.descriptor(), nullptr, nullptr,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (file >= 0)
    prepare(file, silence);
  else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
           errno == ENOMEM)
    return linkError(errno);
  return Socket(file);
}

bool isLoopback(const Socket &listener) {
  sockaddr_storage name = {};
  socklen_t length = sizeof name;
  if (getsockname(listener.descriptor(), reinterpret_cast<sockaddr *>(&name),
                  &length))
    return false;
  return isLoopback(reinterpret_cast<const sockaddr *>(&name));
}

bool isLoopback(const std::string &address) {
  Addresses addresses(address, 0);
  bool all = addresses.code == 0;
  for (addrinfo *at = addresses.first; at && all; at = at->ai_next)
    all = isLoopback(at->ai_addr);
  return all;
}

bool isRefusal(const Error &error) {
  return error.message == linkError(ECONNREFUSED).message;
}

bool isLackOfDescriptors(const Error &error) {
  return error.message == linkError(EMFILE).message ||
         error.message == linkError(ENFILE).message;
}

Result<Socket> connectTo(const std::string &address, int port,
                         Deadline deadline, double silence,
                         std::span<const Endpoint> own) {
  Addresses addresses(address, port);
  if (addresses.code)
    return addresses.error();
  Error error = inputError("the host name does not resolve");
  for (addrinfo *at = addresses.first; at; at = at->ai_next) {
    Socket attempt = socketFor(at->ai_family);
    Name name(*at);
    int status = connectTo(attempt, name, deadline, silence, own);
    if (status == 0)
      return attempt;
    error = linkError(status);
  }
  return error;
}

Result<Socket> connectTo(const Endpoint &endpoint, Deadline deadline,
                         double silence, std::span<const Endpoint> own) {
  Name name(endpoint);
  Socket attempt = socketFor(name.family());
  int status = connectTo(attempt, name, deadline, silence, own);
  if (status != 0)
    return linkError(status);
  return attempt;
}

Result<Socket> startConnecting(const Endpoint &endpoint, double silence,
                               std::span<const Endpoint> own) {
  Name name(endpoint);
  Socket attempt = socketFor(name.family());
  int status = startConnecting(attempt, name, silence, own);
  if (status != 0 && status != EINPROGRESS)
    return linkError(status);
  return attempt;
}

} // namespace fsdpc::runtime

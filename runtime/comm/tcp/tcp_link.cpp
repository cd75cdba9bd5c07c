// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See tcp_link.h. Linux tells how many bytes of a connection are not
// acknowledged (SIOCOUTQ) and not read (SIOCINQ), also after it has broken, and
// lets a broken connection be read to its end (tcp(7)).
#include "runtime/comm/tcp/tcp_link.h"

#include <algorithm>
#include <cstring>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

// Returns a count of bytes of a socket's queue.
uint64_t queued(const Socket &socket, unsigned long request) {
  int bytes = 0;
  return ioctl(socket.descriptor(), request, &bytes) == 0 && bytes > 0
             ? uint64_t(bytes)
             : 0;
}

// What is left of two ranges from a byte on.
std::array<iovec, 2> restOf(std::span<const iovec, 2> parts, size_t from) {
  size_t first = std::min(from, parts[0].iov_len), second = from - first;
  return {iovec{static_cast<char *>(parts[0].iov_base) + first,
                parts[0].iov_len - first},
          iovec{static_cast<char *>(parts[1].iov_base) + second,
                parts[1].iov_len - second}};
}

void signal(int event) {
  uint64_t one = 1;
  // Fails only if the event is signalled already more often than anybody
  // counts.
  (void)!write(event, &one, sizeof one);
}

} // namespace

void Link::open(Socket first) {
  std::lock_guard<std::mutex> lock(mutex);
  socket = std::move(first);
  isWanted = true;
  number = asked = 1;
}

void Link::want() {
  std::lock_guard<std::mutex> lock(mutex);
  wantLocked();
}

void Link::wantLocked() {
  if (isWanted)
    return;
  isWanted = true;
  if (number > 0) // the other end has used it first
    return;
  since = std::chrono::steady_clock::now();
  signal(broken);
}

void Link::beginMessage(std::array<iovec, 2> parts) {
  std::lock_guard<std::mutex> lock(mutex);
  wantLocked();
  message = parts;
  begun = ends;
  ends += parts[0].iov_len + parts[1].iov_len;
}

bool Link::push() {
  std::lock_guard<std::mutex> lock(mutex);
  return pushLocked();
}

bool Link::pushLocked() {
  if (!socket.isOpen() || next == ends)
    return false;
  std::array<iovec, 2> rest;
  if (next < begun)
    rest = {iovec{kept.data() + (next - keptFrom()), begun - next}, iovec{}};
  else
    rest = restOf(message, next - begun);
  Result<size_t> moved = socket.sendSome(rest);
  if (!moved) {
    breakOffLocked(moved.error().message);
    return false;
  }
  next += *moved;
  handed = std::max(handed, next);
  return *moved > 0;
}

bool Link::isPushed() const {
  std::lock_guard<std::mutex> lock(mutex);
  return next == ends;
}

void Link::endMessage() {
  std::lock_guard<std::mutex> lock(mutex);
  noteAcknowledged();
  keepLocked(message);
  // The connection may have been exchanged since the last push.
  if (next < begun)
    signal(broken);
}

uint64_t Link::acknowledgedBytes() {
  std::lock_guard<std::mutex> lock(mutex);
  noteAcknowledged();
  return acknowledged;
}

bool Link::isDelivered() {
  uint64_t there = acknowledgedBytes();
  std::lock_guard<std::mutex> lock(mutex);
  return there == ends;
}

// Takes the caller's first byte, if it is there. Fails if the connection has.
Status Link::confirm() {
  if (isConfirmed)
    return {};
  char first;
  Result<size_t> got = socket.receiveSome(&first, 1);
  FSDPC_TRY(got);
  isConfirmed = *got == 1;
  return {};
}

void Link::noteAcknowledged() {
  if (socket.isOpen() && confirm() && isConfirmed)
    acknowledged =
        std::max(acknowledged, next - std::min(next, queued(socket, SIOCOUTQ)));
}

// Moves what must be kept of the message behind what is kept already. Old bytes
// go only once there are as many of them as of the others, so that a byte is
// moved a fixed number of times.
void Link::keepLocked(std::span<const iovec, 2> parts) {
  uint64_t from = std::min(acknowledged, ends - std::min(ends, leastKept));
  if (from > begun) {
    kept.clear();
  } else if (kept.size() >= 2 * leastKept &&
             from - keptFrom() >= kept.size() / 2) {
    kept.erase(kept.begin(), kept.begin() + ptrdiff_t(from - keptFrom()));
  }
  // Exactly as much as is planned: insert() would take up to twice that.
  std::array<iovec, 2> added = restOf(parts, from > begun ? from - begun : 0);
  kept.reserve(kept.size() + added[0].iov_len + added[1].iov_len);
  for (const iovec &part : added) {
    auto *first = static_cast<const char *>(part.iov_base);
    kept.insert(kept.end(), first, first + part.iov_len);
  }
  begun = ends;
}

void Link::say(uint8_t byte) {
  std::lock_guard<std::mutex> lock(mutex);
  std::array<iovec, 2> parts = {iovec{&byte, 1}, iovec{}};
  ++ends;
  noteAcknowledged();
  keepLocked(parts);
  pushLocked();
  if (next < begun)
    signal(broken);
}

size_t Link::receive(std::span<const iovec, 2> ranges) {
  std::lock_guard<std::mutex> lock(mutex);
  wantLocked();
  if (earlyTaken < early.size()) {
    size_t moved = 0;
    for (const iovec &range : ranges) {
      size_t bytes = std::min(range.iov_len, early.size() - earlyTaken);
      if (bytes > 0)
        memcpy(range.iov_base, early.data() + earlyTaken, bytes);
      earlyTaken += bytes;
      moved += bytes;
    }
    if (earlyTaken == early.size()) {
      early = {};
      earlyTaken = 0;
    }
    return moved;
  }
  if (!socket.isOpen())
    return 0;
  if (Status confirmed = confirm(); !confirmed) {
    breakOffLocked(confirmed.error().message);
    return 0;
  }
  if (!isConfirmed)
    return 0;
  Result<size_t> moved = socket.receiveSome(ranges);
  if (!moved) {
    breakOffLocked(moved.error().message);
    return 0;
  }
  received += *moved;
  return *moved;
}

int Link::descriptor() const {
  std::lock_guard<std::mutex> lock(mutex);
  return socket.descriptor();
}

Link::State Link::state() const {
  std::lock_guard<std::mutex> lock(mutex);
  return {(isWanted || number > 0) && !socket.isOpen(), next < begun, number,
          since, why};
}

uint64_t Link::breakOff(const std::string &reason, int which) {
  std::lock_guard<std::mutex> lock(mutex);
  if (socket.isOpen() && (which == anyConnection || which == number))
    breakOffLocked(reason);
  return received;
}

int Link::nextNumber() {
  std::lock_guard<std::mutex> lock(mutex);
  return ++asked;
}

void Link::breakOffLocked(const std::string &reason) {
  noteAcknowledged();
  // From here on the kernel refuses what arrives. Otherwise it could
  // acknowledge bytes between the last that is read below and the end of the
  // connection.
  shutdown(socket.descriptor(), SHUT_RDWR);
  (void)confirm();
  // What was sent before the break is there in full: only after it the
  // connection's error shows.
  uint64_t left = isConfirmed ? queued(socket, SIOCINQ) : 0;
  while (left > 0) {
    char bytes[16384];
    Result<size_t> got = socket.receiveSome(
        bytes, size_t(std::min<uint64_t>(left, sizeof bytes)));
    if (!got || *got == 0)
      break;
    early.append(bytes, *got);
    received += *got;
    left -= *got;
  }
  socket.close();
  since = std::chrono::steady_clock::now();
  why = reason;
  signal(broken);
  signal(mended); // there may be early bytes
}

bool Link::adopt(Socket following, Side side, int itsNumber,
                 uint64_t peerReceived) {
  std::lock_guard<std::mutex> lock(mutex);
  if (peerReceived < keptFrom() || peerReceived > handed)
    return false;
  socket = std::move(following);
  next = acknowledged = peerReceived;
  number = itsNumber;
  isConfirmed = side == Side::caller;
  // A new connection takes a byte at once, or is broken, which shows later.
  if (side == Side::caller)
    (void)socket.send("", 1, std::chrono::steady_clock::now());
  pushLocked();
  if (next < begun)
    signal(broken); // to send the rest of what is kept
  signal(mended);
  return true;
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The stream of bytes between two ranks on one channel, both ways. It asks for
// its first connection when it is first used, and outlives its connections:
// after one has broken, both ends say how many bytes they have, and the next
// connection goes on there. Nothing is added to the bytes, so a connection that
// does not break costs nothing but what is kept.
//
// Bytes that the other machine's kernel has acknowledged are in the memory of
// the receiving rank, which reads them out of a broken connection. So only the
// others are kept, and a few more for what a relay in between may swallow. The
// memory plan counts a message per link (runtime/abi/staging.cpp).
//
// A byte is lost or comes twice only if one of these rules is broken:
//
// 1. An end that has said how much it has reads nothing more from the old
//    connection, and its kernel acknowledges nothing more there.
// 2. The connections of a link are numbered by the end that calls, upwards. An
//    end only goes on over a connection with a higher number than its last.
// 3. The host of a call goes on first, as soon as it has answered. What it
//    sends then may be acknowledged by the kernel of a caller that has given
//    up meanwhile. So it trusts no acknowledgement until the caller's first
//    byte, which says that the caller goes on too and is not of the stream.
#pragma once

#include "runtime/abi/kept_bytes.h"
#include "runtime/comm/socket.h"

#include <array>
#include <mutex>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// One end of a stream. One thread sends and receives, another one (Mender)
/// makes and exchanges connections; each function may be called on both.
/// Positions count bytes from the beginning of the stream.
class Link {
public:
  static constexpr size_t leastKept = leastKeptBytes;

  /// A link without a connection. `broken` and `mended` are eventfds, which
  /// must outlive the link. `broken` is written to when there is something to
  /// do for the other thread, `mended` when there is for the one that receives.
  Link(int broken, int mended) : broken(broken), mended(mended) {}
  Link(const Link &) = delete;

  /// Takes the first connection, for a link whose ends have met already.
  void open(Socket first);
  /// Asks for the first connection if there was none yet, as the first message
  /// in either direction does.
  void want();

  // For the thread that sends and receives.

  /// Begins a message of two parts, which must stay valid until endMessage().
  void beginMessage(std::array<iovec, 2> parts);
  /// Sends as much as possible without waiting. Returns true if that was
  /// anything.
  bool push();
  /// Returns true if the whole message was handed to the kernel.
  bool isPushed() const;
  /// Keeps of the message what may have to be sent again.
  void endMessage();
  /// Sends one byte, now or when there is a connection again.
  void say(uint8_t byte);
  /// Returns how many bytes of what was sent the other machine has, at least.
  uint64_t acknowledgedBytes();
  /// Returns true if it has everything.
  bool isDelivered();
  /// Receives the two ranges one after the other, as far as possible without
  /// waiting. Returns the number of bytes; 0 without a connection.
  size_t receive(std::span<const iovec, 2> ranges);
  /// The connection's descriptor for poll(), or -1 while there is none.
  int descriptor() const;

  // For the thread that exchanges connections.

  struct State {
    bool broken = false;   ///< wants a connection and has none
    bool mustPush = false; ///< kept bytes are to be sent again
    int number = 0;        ///< of the last connection; 0: there was none
    Deadline since;        ///< when that one broke, or was first wanted
    std::string why;
  };
  State state() const;
  static constexpr int anyConnection = -1;
  /// Gives up the connection if it has this number, and reads what it still
  /// holds. None has number 0: who has seen a link without a connection must
  /// not break the one that was made since. Returns the number of bytes
  /// received so far, which a new connection continues.
  uint64_t breakOff(const std::string &why, int number = anyConnection);
  /// Returns the number of the next connection that this end asks for.
  int nextNumber();
  enum class Side { caller, host };
  /// Goes on over connection `number`, from the peer's position. To be called
  /// after breakOff(), whose result the peer has been told. Returns false if
  /// that is not possible: bytes that the peer needs are gone, or it claims
  /// bytes that were never sent.
  bool adopt(Socket next, Side side, int number, uint64_t peerReceived);

private:
  void wantLocked();
  void breakOffLocked(const std::string &why);
  bool pushLocked();
  Status confirm();
  void noteAcknowledged();
  void keepLocked(std::span<const iovec, 2> parts);
  uint64_t keptFrom() const { return begun - kept.size(); }

  mutable std::mutex mutex;
  Socket socket;
  const int broken, mended;
  bool isWanted = false; ///< somebody uses the link
  int number = 0,
      asked = 0;           ///< of connections: the last one, and one asked for
  bool isConfirmed = true; ///< the peer goes on over this connection too
  Deadline since = {};
  std::string why;
  /// Of the stream that is sent: the message under way is [begun, ends), and
  /// `kept` holds what comes before it.
  std::array<iovec, 2> message = {};
  uint64_t begun = 0, ends = 0;
  uint64_t next = 0;         ///< to be handed to the kernel
  uint64_t handed = 0;       ///< the most that `next` was
  uint64_t acknowledged = 0; ///< by the kernel of the other machine, at least
  std::vector<char> kept;
  /// Of the stream that is received: its length, the end of which still is in
  /// `early`, read out of a broken connection.
  uint64_t received = 0;
  std::string early;
  size_t earlyTaken = 0;
};

} // namespace fsdpc::runtime

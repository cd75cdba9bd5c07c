// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The messages of a TCP job before its first collective, and those of its
// watch. Everything here is a function of bytes, without a socket, so that it
// can be tested and fuzzed.
//
// Every rank calls rank 0, and other lower ones once it has said where they
// listen and the two first exchange something. The host of a connection is the
// rank that listens.
// The caller and the host exchange random nonces. Each then proves that it
// knows the job's key, by a seal over both nonces:
//
//     caller -> host     Hello      the caller's nonce
//     host -> caller     Challenge  the host's nonce, sealed
//     caller -> host     Greeting   both ranks, link and process, sealed
//     host -> caller     Answer     the verdict, sealed
//     rank 0 -> caller   Start      later, once all ranks are there, sealed
//
// If a connection breaks later, the higher rank calls the lower one again in
// the same way, and then sends one byte to say that it goes on. Both say how
// many bytes of the link they have received (tcp_link.h). The lower rank may
// ask the higher one to call, by a conversation that ends with the Answer.
//
// A seal is an HMAC-SHA256 over the kind of the message, both nonces and the
// content. So no seal is valid on another connection, in the other direction,
// or for another message. Messages are sent as they are in memory, because all
// ranks run the same executable on the same kind of machine.
#pragma once

#include "runtime/abi/staging.h"
#include "runtime/comm/socket.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace fsdpc::runtime {

/// Two ranks have at most one connection per channel; with rank 0 there is one
/// more, for the watch.
constexpr int watchLink = channels, links = channels + 1;

using Bytes32 = std::array<uint8_t, 32>;
using HostName = std::array<char, 64>;

/// Returns random bytes from the kernel.
Bytes32 randomBytes();
/// Returns bytes as lowercase hexadecimal digits.
std::string hexOf(std::span<const uint8_t> bytes);
/// Returns the SHA-256 of a text, or of bytes.
Bytes32 digestOf(const std::string &text);
Bytes32 digestOf(std::span<const uint8_t> bytes);
/// Returns the name up to its end, with '?' for what cannot be printed.
std::string textOf(const HostName &name);
HostName ownHostName();

/// Binds a seal to one connection of one job.
struct Conversation {
  Bytes32 key, caller, host; ///< the job's key and both nonces
};

using Protocol = std::array<char, 8>;
constexpr Protocol protocol = {'f', 's', 'd', 'p', 'c', '-', '0', '5'};

struct Hello {
  Protocol protocol;
  Bytes32 nonce;
};
struct Challenge {
  static constexpr char kind = 'c';
  Protocol protocol;
  Bytes32 nonce;
  Bytes32 seal;
};
struct Greeting {
  static constexpr char kind = 'g';
  int32_t rank, ranks, link, process;
  int32_t to; ///< the rank that is called
  /// Number of the link's connection: of the one to be made, or, if a lower
  /// rank asks for one, of the one that is lost, 0 if there was none. 0 while
  /// the ranks meet.
  int32_t connection;
  Endpoint listener; ///< where other ranks can call this one
  uint64_t received; ///< bytes of the link that the caller has
  Bytes32 self;      ///< random; a process that calls again is known by it
  Bytes32 called; ///< `self` of the process that is called; 0 while they meet
  Bytes32 job;    ///< digest of the launcher's name of the job
  HostName host;
  Bytes32 seal;
};
enum class Verdict : int32_t {
  welcome,
  otherJob,
  otherSize,
  rankTaken,
  otherProcess ///< not the one with which the link began
};
struct Answer {
  static constexpr char kind = 'a';
  Verdict verdict;
  int32_t process;   ///< with rankTaken: who has the rank
  uint64_t received; ///< bytes of the link that the host has
  HostName host;
  Bytes32 seal;
};
/// Followed by a Member per rank if `starts`.
struct Start {
  static constexpr char kind = 's';
  int32_t starts;    ///< 0: the job does not start; rank 0 has printed why
  Endpoint listener; ///< where this rank can call rank 0 from now on
  Bytes32 members;   ///< their digest
  Bytes32 seal;
};
struct Member {
  HostName host;
  Endpoint listener;
  Bytes32 self; ///< of its process
};

Bytes32 sealOf(char kind, const Conversation &conversation,
               std::span<const uint8_t> content);
/// Compares in constant time.
bool areEqual(const Bytes32 &a, const Bytes32 &b);

/// Returns a message's bytes up to its seal, which comes last.
template <typename Message>
std::span<const uint8_t> contentOf(const Message &message) {
  static_assert(std::has_unique_object_representations_v<Message>,
                "padding would be sent and sealed");
  static_assert(offsetof(Message, seal) + sizeof(Bytes32) == sizeof(Message));
  return {reinterpret_cast<const uint8_t *>(&message), offsetof(Message, seal)};
}

template <typename Message>
void seal(Message &message, const Conversation &conversation) {
  message.seal = sealOf(Message::kind, conversation, contentOf(message));
}

template <typename Message>
bool isSealed(const Message &message, const Conversation &conversation) {
  return areEqual(message.seal,
                  sealOf(Message::kind, conversation, contentOf(message)));
}

/// The parsers return nothing if the bytes are not such a message of this
/// conversation. The values in it are then still those of a rank that may be
/// wrong about the job; judging them is the reader's part.
std::optional<Hello> parseHello(std::span<const uint8_t> bytes);
/// Takes the host's nonce into the conversation, since the seal covers it.
std::optional<Challenge> parseChallenge(std::span<const uint8_t> bytes,
                                        Conversation &conversation);
std::optional<Greeting> parseGreeting(std::span<const uint8_t> bytes,
                                      const Conversation &conversation);
std::optional<Answer> parseAnswer(std::span<const uint8_t> bytes,
                                  const Conversation &conversation);
std::optional<Start> parseStart(std::span<const uint8_t> bytes,
                                const Conversation &conversation);

/// A word of the watch (tcp_session.h), sent as one byte.
struct Word {
  enum Kind { here, leaves, ends } kind;
  int code = 0; ///< of `ends`: an exit code from 1 to 127, never 0
};
uint8_t byteOf(Word word);
/// Returns nothing for a byte that no rank sends. The code of a job that ended
/// for a reason is never 0.
std::optional<Word> parseWord(uint8_t byte);

} // namespace fsdpc::runtime

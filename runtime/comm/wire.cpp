// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Seals and parsers of the wire's messages. A parser checks the length, the
// seal and then each value whose range does not depend on the job. The HMAC is
// libsodium's.
#include "runtime/comm/wire.h"

#include <algorithm>
#include <cstring>
#include <sodium.h>
#include <stdexcept>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

static_assert(sizeof(Bytes32) == crypto_auth_hmacsha256_BYTES);
static_assert(sizeof(Bytes32) == crypto_hash_sha256_BYTES);

// The library's own start, which it wants before any other call.
void prepareLibrary() {
  static const bool ready = sodium_init() >= 0;
  if (!ready)
    throw std::runtime_error("libsodium cannot be initialised");
}

template <typename Message>
std::optional<Message> copyOf(std::span<const uint8_t> bytes) {
  if (bytes.size() != sizeof(Message))
    return {};
  Message message;
  memcpy(static_cast<void *>(&message), bytes.data(), sizeof message);
  return message;
}

template <typename Message>
std::optional<Message> sealedCopyOf(std::span<const uint8_t> bytes,
                                    const Conversation &conversation) {
  std::optional<Message> message = copyOf<Message>(bytes);
  if (message && !isSealed(*message, conversation))
    return {};
  return message;
}

constexpr uint8_t firstEnd = 128; // plus the exit code

} // namespace

// Returns bytes for nonces and keys.
Bytes32 randomBytes() {
  prepareLibrary();
  Bytes32 bytes;
  randombytes_buf(bytes.data(), bytes.size());
  return bytes;
}

// A fixed size for texts of any length: job names in a Greeting, and the text
// of FSDPC_SECRET as a key.
std::string hexOf(std::span<const uint8_t> bytes) {
  std::string text(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
  text.pop_back(); // the end that the library writes
  return text;
}

Bytes32 digestOf(const std::string &text) {
  return digestOf(
      std::span(reinterpret_cast<const uint8_t *>(text.data()), text.size()));
}

Bytes32 digestOf(std::span<const uint8_t> bytes) {
  prepareLibrary();
  Bytes32 digest;
  crypto_hash_sha256(digest.data(), bytes.data(), bytes.size());
  return digest;
}

// The name came over a connection and goes into messages in single quotes:
// neither control characters nor a quote may get through.
std::string textOf(const HostName &name) {
  std::string text(name.begin(), std::find(name.begin(), name.end(), '\0'));
  for (char &c : text)
    if (c < ' ' || c > '~' || c == '\'')
      c = '?';
  return text;
}

// Zeroed first, since gethostname need not terminate a name that it cuts off.
HostName ownHostName() {
  HostName name = {};
  gethostname(name.data(), name.size() - 1);
  return name;
}

// HMAC-SHA256 over protocol | kind | caller's nonce | host's nonce | content.
// All parts but the last have a fixed length, so no two different inputs give
// the same bytes.
Bytes32 sealOf(char kind, const Conversation &conversation,
               std::span<const uint8_t> content) {
  prepareLibrary();
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, conversation.key.data(),
                              conversation.key.size());
  auto add = [&](const void *data, size_t bytes) {
    crypto_auth_hmacsha256_update(
        &state, static_cast<const unsigned char *>(data), bytes);
  };
  add(protocol.data(), protocol.size());
  add(&kind, 1);
  add(conversation.caller.data(), conversation.caller.size());
  add(conversation.host.data(), conversation.host.size());
  add(content.data(), content.size());
  Bytes32 seal;
  crypto_auth_hmacsha256_final(&state, seal.data());
  return seal;
}

// A comparison that ends at the first difference would tell by its time how
// much of a guessed seal is right.
bool areEqual(const Bytes32 &a, const Bytes32 &b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

// The only message without a seal: the caller does not have the host's nonce
// yet.
std::optional<Hello> parseHello(std::span<const uint8_t> bytes) {
  std::optional<Hello> hello = copyOf<Hello>(bytes);
  if (hello && hello->protocol != protocol)
    return {};
  return hello;
}

std::optional<Challenge> parseChallenge(std::span<const uint8_t> bytes,
                                        Conversation &conversation) {
  std::optional<Challenge> challenge = copyOf<Challenge>(bytes);
  if (!challenge || challenge->protocol != protocol)
    return {};
  // The nonce must be in place before the seal over it is checked. If the check
  // fails, the caller drops the conversation.
  conversation.host = challenge->nonce;
  if (!isSealed(*challenge, conversation))
    return {};
  return challenge;
}

std::optional<Greeting> parseGreeting(std::span<const uint8_t> bytes,
                                      const Conversation &conversation) {
  auto greeting = sealedCopyOf<Greeting>(bytes, conversation);
  if (!greeting)
    return {};
  // While the ranks meet, each calls lower ones only. Later calls name the
  // process that is called. The upper bound of `rank` depends on the job, so
  // the reception judges it; `link` indexes an array.
  int32_t rank = greeting->rank, to = greeting->to;
  bool isLater = greeting->connection > 0 || greeting->called != Bytes32{};
  bool isCall = isLater ? rank != to : rank > to;
  int linksOfBoth = rank == 0 || to == 0 ? links : channels;
  if (rank < 0 || to < 0 || greeting->connection < 0 || !isCall ||
      greeting->link < 0 || greeting->link >= linksOfBoth)
    return {};
  return greeting;
}

std::optional<Answer> parseAnswer(std::span<const uint8_t> bytes,
                                  const Conversation &conversation) {
  auto answer = sealedCopyOf<Answer>(bytes, conversation);
  if (answer && (answer->verdict < Verdict::welcome ||
                 answer->verdict > Verdict::otherProcess))
    return {};
  return answer;
}

std::optional<Start> parseStart(std::span<const uint8_t> bytes,
                                const Conversation &conversation) {
  return sealedCopyOf<Start>(bytes, conversation);
}

// 0 and 1 are `here` and `leaves`; 129 to 255 are `ends` with the codes 1 to
// 127.
uint8_t byteOf(Word word) {
  if (word.kind != Word::ends)
    return uint8_t(word.kind);
  // Another code would read as success, or as no end at all.
  bool fits = word.code > 0 && word.code < 256 - firstEnd;
  return uint8_t(firstEnd + (fits ? word.code : 3));
}

std::optional<Word> parseWord(uint8_t byte) {
  if (byte == Word::here || byte == Word::leaves)
    return Word{Word::Kind(byte), 0};
  if (byte > firstEnd)
    return Word{Word::ends, byte - firstEnd};
  return {};
}

} // namespace fsdpc::runtime

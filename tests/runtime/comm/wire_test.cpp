// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The wire's messages as bytes: what a seal binds, and that nothing else than
// the message of this connection parses.
#include "runtime/comm/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

using namespace fsdpc::runtime;

namespace {

std::mt19937 &generator() {
  static std::mt19937 numbers(11);
  return numbers;
}

std::vector<uint8_t> noise(size_t bytes) {
  std::vector<uint8_t> random(bytes);
  for (uint8_t &byte : random)
    byte = uint8_t(generator()());
  return random;
}

template <typename Message>
std::vector<uint8_t> bytesOf(const Message &message) {
  auto *first = reinterpret_cast<const uint8_t *>(&message);
  return {first, first + sizeof message};
}

Conversation conversationOf(const char *key) {
  return {digestOf(key), digestOf("the caller's nonce"),
          digestOf("rank 0's nonce")};
}

Greeting sealedGreeting(const Conversation &conversation) {
  Greeting greeting = {};
  greeting.rank = 1;
  greeting.ranks = 2;
  greeting.link = 3;
  greeting.process = 4;
  greeting.self = digestOf("self");
  greeting.job = digestOf("job");
  strcpy(greeting.host.data(), "node");
  seal(greeting, conversation);
  return greeting;
}

// A sealed message is what it was when it was sealed.
TEST(Wire, aSealedMessageParses) {
  Conversation conversation = conversationOf("key");
  auto greeting =
      parseGreeting(bytesOf(sealedGreeting(conversation)), conversation);
  ASSERT_TRUE(greeting);
  EXPECT_EQ(greeting->rank, 1);
  EXPECT_EQ(textOf(greeting->host), "node");
  Answer answer = {Verdict::rankTaken, 7, 0, {}, {}};
  seal(answer, conversation);
  EXPECT_EQ(parseAnswer(bytesOf(answer), conversation)->process, 7);
  Start start = {1, {}, {}, {}};
  seal(start, conversation);
  EXPECT_TRUE(parseStart(bytesOf(start), conversation));
  Challenge challenge = {protocol, conversation.host, {}};
  seal(challenge, conversation);
  conversation.host = {};
  EXPECT_TRUE(parseChallenge(bytesOf(challenge), conversation));
  EXPECT_EQ(conversation.host, challenge.nonce);
}

// The seal covers every bit, and a message has one length.
TEST(Wire, everyBitAndByteCounts) {
  Conversation conversation = conversationOf("key");
  std::vector<uint8_t> bytes = bytesOf(sealedGreeting(conversation));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= uint8_t(1 << bit % 8);
    EXPECT_FALSE(parseGreeting(bytes, conversation)) << "bit " << bit;
    bytes[bit / 8] ^= uint8_t(1 << bit % 8);
  }
  std::span<const uint8_t> all = bytes;
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(parseGreeting(all.first(length), conversation));
  bytes.push_back(0);
  EXPECT_FALSE(parseGreeting(bytes, conversation));
}

// A seal is of no use with another key, on another connection, or on a message
// of another kind with the same content.
TEST(Wire, aSealBindsKeyConnectionAndKind) {
  Conversation conversation = conversationOf("key");
  std::vector<uint8_t> bytes = bytesOf(sealedGreeting(conversation));
  EXPECT_FALSE(parseGreeting(bytes, conversationOf("another key")));
  Conversation other = conversation;
  other.caller[31] ^= 1;
  EXPECT_FALSE(parseGreeting(bytes, other));
  other = conversation;
  std::swap(other.caller, other.host);
  EXPECT_FALSE(parseGreeting(bytes, other));
  auto content = std::span<const uint8_t>(bytes).first(8);
  EXPECT_NE(sealOf(Answer::kind, conversation, content),
            sealOf(Start::kind, conversation, content));
}

// A rank of the job may still be wrong: what it says of itself is checked.
TEST(Wire, aSealedGreetingMayStillBeWrong) {
  Conversation conversation = conversationOf("key");
  struct {
    int rank, to, link;
  } wrong[] = {{0, 0, 0},  {-1, 0, 0},       {1, 0, -1}, {1, 0, links},
               {1, 1, 0},  {1, 2, 0},        {2, -1, 0}, {-1, -2, 0},
               {2, 1, -1}, {2, 1, watchLink}};
  for (auto [rank, to, link] : wrong) {
    Greeting greeting = sealedGreeting(conversation);
    greeting.rank = rank;
    greeting.to = to;
    greeting.link = link;
    seal(greeting, conversation);
    EXPECT_FALSE(parseGreeting(bytesOf(greeting), conversation));
  }
  Answer answer = {Verdict(9), 0, 0, {}, {}};
  seal(answer, conversation);
  EXPECT_FALSE(parseAnswer(bytesOf(answer), conversation));
}

// A lower rank may call a higher one only to have a connection made again.
TEST(Wire, onlyARankThatHasMetTheOtherCallsAHigherOne) {
  Conversation conversation = conversationOf("key");
  for (int connection : {-1, 0, 1}) {
    Greeting greeting = sealedGreeting(conversation);
    greeting.rank = 1;
    greeting.to = 2;
    greeting.link = 0;
    greeting.connection = connection;
    seal(greeting, conversation);
    EXPECT_EQ(bool(parseGreeting(bytesOf(greeting), conversation)),
              connection == 1);
  }
}

// Nobody finds a seal without the key, whatever the message's size.
TEST(Wire, randomBytesParseAsNothing) {
  Conversation conversation = conversationOf("key");
  const size_t sizes[] = {sizeof(Hello), sizeof(Challenge), sizeof(Greeting),
                          sizeof(Answer), sizeof(Start)};
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> bytes = noise(sizes[size_t(i) % 5]);
    // Half of them speak the protocol.
    if (i % 2)
      memcpy(bytes.data(), protocol.data(), protocol.size());
    EXPECT_EQ(bool(parseHello(bytes)), i % 10 == 5);
    EXPECT_FALSE(parseChallenge(bytes, conversation));
    EXPECT_FALSE(parseGreeting(bytes, conversation));
    EXPECT_FALSE(parseAnswer(bytes, conversation));
    EXPECT_FALSE(parseStart(bytes, conversation));
  }
}

// No word ends a job with success, and what no rank sends is not a word.
TEST(Wire, wordsAreCheckedByRange) {
  for (int byte = 0; byte < 256; ++byte) {
    std::optional<Word> word = parseWord(uint8_t(byte));
    EXPECT_EQ(bool(word), byte < 2 || byte > 128) << byte;
    if (!word)
      continue;
    EXPECT_EQ(byteOf(*word), byte);
    EXPECT_EQ(word->code > 0, word->kind == Word::ends);
  }
  for (int code : {0, -1, 128, 256, 300})
    EXPECT_EQ(parseWord(byteOf({Word::ends, code}))->code, 3) << code;
}

// A host's name reaches the terminal.
TEST(Wire, namesOfHostsArePrintable) {
  HostName name;
  for (int i = 0; i < 1000; ++i) {
    std::vector<uint8_t> bytes = noise(name.size());
    memcpy(name.data(), bytes.data(), name.size());
    for (char c : textOf(name))
      EXPECT_TRUE(c >= ' ' && c <= '~' && c != '\'');
  }
}

} // namespace

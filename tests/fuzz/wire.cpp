// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes the messages of the meeting and the words of the watch. The first byte
// of the input chooses the message, and whether the rest gets a right seal: a
// fuzzer cannot find one, and behind it are the checks of a rank of the job
// that is wrong.
#include "runtime/comm/wire.h"
#include "tests/fuzz/input.h"

#include <algorithm>
#include <cstring>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

using Bytes = std::span<const uint8_t>;

// Fixed keys, so that an input means the same in every run.
Conversation conversation() {
  static const Conversation talk = {digestOf("key"), digestOf("caller"),
                                    digestOf("rank 0")};
  return talk;
}

void demandPrintable(const HostName &host) {
  std::string text = textOf(host);
  fuzz::demand(text.size() <= host.size() &&
                   std::all_of(text.begin(), text.end(),
                               [](char c) { return c >= ' ' && c <= '~'; }),
               "a host's name is printable");
}

// Parses a message as it is, or with the right seal, and hands it to `check`.
// Without a right seal no message parses.
template <typename Message, typename Parse, typename Check>
void tryMessage(Bytes bytes, bool sealed, Parse parse, Check check) {
  if (!sealed || bytes.size() != sizeof(Message)) {
    fuzz::demand(!parse(bytes), "nothing parses without its seal");
    return;
  }
  Message message;
  // Any bytes as the fields, then a seal over them: what a rank of the job with
  // a bug might send.
  memcpy(static_cast<void *>(&message), bytes.data(), sizeof message);
  seal(message, conversation());
  if (auto parsed =
          parse({reinterpret_cast<const uint8_t *>(&message), sizeof message}))
    check(*parsed);
}

void tryGreeting(Bytes bytes, bool sealed) {
  tryMessage<Greeting>(
      bytes, sealed,
      [](Bytes bytes) { return parseGreeting(bytes, conversation()); },
      [](const Greeting &greeting) {
        fuzz::demand(greeting.to >= 0 && greeting.rank >= 0 &&
                         greeting.rank != greeting.to && greeting.link >= 0 &&
                         greeting.link < links,
                     "a greeting's numbers are in range");
        demandPrintable(greeting.host);
      });
}

void tryAnswer(Bytes bytes, bool sealed) {
  tryMessage<Answer>(
      bytes, sealed,
      [](Bytes bytes) { return parseAnswer(bytes, conversation()); },
      [](const Answer &answer) {
        fuzz::demand(answer.verdict >= Verdict::welcome &&
                         answer.verdict <= Verdict::otherProcess,
                     "a verdict is one of the verdicts");
        demandPrintable(answer.host);
      });
}

void tryStart(Bytes bytes, bool sealed) {
  tryMessage<Start>(
      bytes, sealed,
      [](Bytes bytes) { return parseStart(bytes, conversation()); },
      [](const Start &) {});
}

// Always without a right seal: forging one is what a stranger would have to do.
void tryChallenge(Bytes bytes) {
  Conversation talk = conversation();
  fuzz::demand(!parseChallenge(bytes, talk), "nothing parses without its seal");
}

// A hello has no seal: it comes before any key is known to be shared.
void tryHello(Bytes bytes) {
  if (auto hello = parseHello(bytes))
    fuzz::demand(hello->protocol == protocol, "a hello names the protocol");
}

void tryWords(Bytes bytes) {
  for (uint8_t byte : bytes)
    if (std::optional<Word> word = parseWord(byte)) {
      fuzz::demand(byteOf(*word) == byte, "a word has one byte");
      fuzz::demand(word->kind != Word::ends ||
                       (word->code > 0 && word->code < 128),
                   "no word ends a job with success");
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  // The low bits choose the message and the highest bit the seal, so mutations
  // of one leave the other.
  bool sealed = data[0] & 128;
  Bytes bytes(data + 1, size - 1);
  switch (data[0] % 8) {
  case 0:
    tryHello(bytes);
    break;
  case 1:
    tryChallenge(bytes);
    break;
  case 2:
    tryGreeting(bytes, sealed);
    break;
  case 3:
    tryAnswer(bytes, sealed);
    break;
  case 4:
    tryStart(bytes, sealed);
    break;
  default:
    tryWords(bytes);
  }
  return 0;
}

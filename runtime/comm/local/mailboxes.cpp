// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Posting, copying and waiting are three passes over a rank's messages: all of
// them are posted before the rank waits for any, so ranks that send to each
// other at once do not wait in a circle.
#include "runtime/comm/local/mailboxes.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/spin.h"
#include "runtime/support/concat.h"

#include <cstring>

namespace fsdpc::runtime {

namespace {

// Sleeps in the kernel once polling has been in vain.
void waitFor(std::atomic<uint32_t> &word, uint32_t value) {
  auto reached = [&] { return word.load() == value; };
  if (spinFor20Microseconds(reached))
    return;
  while (!reached())
    word.wait(1 - value);
}

void set(std::atomic<uint32_t> &word, uint32_t value) {
  word = value;
  word.notify_one();
}

} // namespace

void Mailboxes::transfer(int self, std::span<const Outgoing> sends,
                         std::span<const Incoming> receives) {
  for (const Outgoing &message : sends) {
    Box &box = boxOf(self, message.peer);
    box.data = message.data;
    box.bytes = message.bytes;
    set(box.full, 1);
  }
  for (const Incoming &message : receives) {
    Box &box = boxOf(message.peer, self);
    waitFor(box.full, 1);
    if (box.bytes != message.bytes)
      fail(runError(concat("rank ", message.peer, " sent ", box.bytes,
                           " bytes where rank ", self, " expects ",
                           message.bytes)));
    // An empty message may have no memory.
    if (message.bytes)
      memcpy(message.data, box.data, message.bytes);
    set(box.full, 0);
  }
  // From here on the caller may change what it sent.
  for (const Outgoing &message : sends)
    waitFor(boxOf(self, message.peer).full, 0);
}

} // namespace fsdpc::runtime

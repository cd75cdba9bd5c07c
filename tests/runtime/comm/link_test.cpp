// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links whose connections break: over a relay that cuts at every byte of an
// exchange and swallows what it has not passed on.
#include "tests/runtime/comm/link_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::runtime::testing;

namespace {

class BrokenLinks : public ::testing::Test {
protected:
  ~BrokenLinks() override {
    close(broken);
    close(mended);
  }
  int broken = eventfd(0, EFD_NONBLOCK), mended = eventfd(0, EFD_NONBLOCK);
  Socket listener = std::move(*listenOn(loopback()));
};

// The relay passes `passed` bytes on, swallows what else it has read, and
// resets both connections. Then both ends go on over a direct one.
TEST_F(BrokenLinks, goOnAfterACutAtEveryByte) {
  std::vector<std::string> there, back;
  for (size_t bytes : {32, 0, 1, 57, 300, 8})
    there.push_back(noise(bytes, unsigned(bytes)));
  for (size_t bytes : {5, 200, 1})
    back.push_back(noise(bytes, unsigned(bytes) + 1000));
  auto joined = [](const std::vector<std::string> &texts) {
    std::string all;
    for (const std::string &text : texts)
      all += text;
    return all;
  };
  std::string allThere = joined(there), allBack = joined(back);
  for (size_t passed = 0; passed <= allThere.size() + allBack.size();
       ++passed) {
    End one(there, allBack.size()), two(back, allThere.size());
    auto [a, relayA] = connectionOf(listener);
    auto [b, relayB] = connectionOf(listener);
    Link left(broken, mended), right(broken, mended);
    left.open(std::move(a));
    right.open(std::move(b));
    size_t budget = passed;
    bool cut = false;
    auto relay = [&](Socket &from, Socket &to) {
      char bytes[4096];
      auto got = from.receiveSome(bytes, sizeof bytes);
      if (!got || *got == 0)
        return;
      size_t count = std::min(budget, *got);
      ASSERT_TRUE(to.send(bytes, count, inSeconds(patience)));
      budget -= count;
      cut |= count < *got;
    };
    Deadline deadline = inSeconds(patience);
    bool done = false;
    while (!done && std::chrono::steady_clock::now() < deadline) {
      bool first = one.step(left), second = two.step(right);
      done = first && second;
      if (cut) {
        reset(relayA);
        reset(relayB);
        uint64_t hasLeft = left.breakOff("cut"),
                 hasRight = right.breakOff("cut");
        auto [c, d] = connectionOf(listener);
        ASSERT_TRUE(left.adopt(std::move(c), Link::Side::caller, 2, hasRight))
            << passed;
        ASSERT_TRUE(right.adopt(std::move(d), Link::Side::host, 2, hasLeft))
            << passed;
        cut = false;
      } else if (relayA.isOpen()) {
        relay(relayA, relayB);
        relay(relayB, relayA);
      }
    }
    ASSERT_TRUE(done) << passed;
    EXPECT_EQ(two.got, allThere) << "cut after " << passed << " bytes";
    EXPECT_EQ(one.got, allBack) << "cut after " << passed << " bytes";
  }
}

// What waits in the kernels is more than is kept of what was acknowledged, and
// none of it is lost when a connection is reset.
TEST_F(BrokenLinks, loseNothingThatWasOnItsWay) {
  std::vector<std::string> messages;
  std::string all;
  for (unsigned i = 0; i < 200; ++i)
    all += messages.emplace_back(noise(1 + i * 997 % 40000, i));
  End one(messages, 0), two({}, all.size());
  auto [a, b] = connectionOf(listener);
  Link left(broken, mended), right(broken, mended);
  left.open(std::move(a));
  right.open(std::move(b));
  Deadline deadline = inSeconds(patience);
  bool done = false;
  for (int i = 1; !done && std::chrono::steady_clock::now() < deadline; ++i) {
    done = one.step(left);
    // The receiver is slow.
    if (i % 3 == 0)
      done &= two.step(right);
    else
      done = false;
    if (i % 40 == 0) {
      uint64_t hasLeft = left.breakOff("cut"), hasRight = right.breakOff("cut");
      auto [c, d] = connectionOf(listener);
      ASSERT_TRUE(left.adopt(std::move(c), Link::Side::caller, 2, hasRight));
      ASSERT_TRUE(right.adopt(std::move(d), Link::Side::host, 2, hasLeft));
    }
  }
  EXPECT_TRUE(done);
  EXPECT_TRUE(two.got == all);
}

// A relay that acknowledges more than is kept, and then loses it, is noticed.
// So is a peer that claims what was never sent.
TEST_F(BrokenLinks, refuseToGoOnWithoutWhatIsGone) {
  auto [a, relay] = connectionOf(listener);
  Link left(broken, mended);
  left.open(std::move(a));
  std::string text = noise(20000, 1);
  size_t read = 0;
  left.beginMessage({iovec{text.data(), text.size()}, iovec{}});
  while (!left.isPushed() || read < text.size()) {
    left.push();
    char bytes[4096];
    read += *relay.receiveSome(bytes, sizeof bytes);
  }
  left.endMessage();
  left.breakOff("cut");
  for (uint64_t has : {uint64_t(0), uint64_t(1000), uint64_t(20001)}) {
    auto [c, d] = connectionOf(listener);
    EXPECT_FALSE(left.adopt(std::move(c), Link::Side::host, 2, has)) << has;
  }
  auto [c, d] = connectionOf(listener);
  EXPECT_TRUE(
      left.adopt(std::move(c), Link::Side::host, 2, 20000 - Link::leastKept));
  std::string again(Link::leastKept, '\0');
  while (left.push())
    ;
  EXPECT_TRUE(d.receive(again.data(), again.size(), inSeconds(patience)));
  EXPECT_TRUE(again == text.substr(20000 - Link::leastKept));
}

// The mender looks at a link before its first connection is adopted, and acts
// after that on what it has seen.
TEST_F(BrokenLinks, keepAConnectionThatWasMadeMeanwhile) {
  Link link(broken, mended);
  link.want();
  Link::State seen = link.state();
  EXPECT_EQ(seen.number, 0);
  auto [a, b] = connectionOf(listener);
  ASSERT_TRUE(link.adopt(std::move(a), Link::Side::host, 1, 0));
  link.breakOff("a test", seen.number);
  EXPECT_FALSE(link.state().broken);
  link.breakOff("a test", 1);
  EXPECT_TRUE(link.state().broken);
}

// An end that gives up while the other one sends has all that its kernel has
// acknowledged.
TEST_F(BrokenLinks, haveWhatWasAcknowledgedWhileAnEndGaveUp) {
  std::string text = noise(1 << 20, 1);
  for (int i = 0; i < 200; ++i) {
    End two({}, text.size());
    auto [a, b] = connectionOf(listener);
    Link left(broken, mended), right(broken, mended);
    left.open(std::move(a));
    right.open(std::move(b));
    left.beginMessage({iovec{text.data(), text.size()}, iovec{}});
    std::thread sender([&] {
      while (!left.isPushed() && !left.state().broken)
        left.push();
    });
    while (two.taken < text.size() / 3)
      two.step(right);
    uint64_t hasRight = right.breakOff("a test");
    sender.join();
    // As if the message had ended here: what was acknowledged is not kept.
    EXPECT_LE(left.acknowledgedBytes(), hasRight);
    uint64_t hasLeft = left.breakOff("a test");
    auto [c, d] = connectionOf(listener);
    ASSERT_TRUE(left.adopt(std::move(c), Link::Side::caller, 2, hasRight));
    ASSERT_TRUE(right.adopt(std::move(d), Link::Side::host, 2, hasLeft));
    while (!left.isPushed() || two.taken < text.size()) {
      left.push();
      two.step(right);
    }
    EXPECT_TRUE(two.got == text);
  }
}

// A caller that gives up after the host has gone on leaves a connection whose
// kernel acknowledges what nobody reads.
TEST_F(BrokenLinks, trustNoAcknowledgementBeforeTheCallerGoesOn) {
  std::string text = noise(100000, 1);
  auto [a, b] = connectionOf(listener);
  Link host(broken, mended);
  host.open(std::move(a));
  host.breakOff("a test");
  auto [c, d] = connectionOf(listener);
  ASSERT_TRUE(host.adopt(std::move(c), Link::Side::host, 2, 0));
  host.beginMessage({iovec{text.data(), text.size()}, iovec{}});
  std::string gone(text.size(), '\0');
  for (size_t read = 0; read < gone.size();) {
    host.push();
    read += *d.receiveSome(gone.data() + read, gone.size() - read);
  }
  host.endMessage();
  d.close();
  host.breakOff("a test");
  auto [e, f] = connectionOf(listener);
  ASSERT_TRUE(host.adopt(std::move(e), Link::Side::host, 3, 0));
  std::string again(text.size(), '\0');
  for (size_t read = 0; read < again.size();) {
    host.push();
    read += *f.receiveSome(again.data() + read, again.size() - read);
  }
  EXPECT_TRUE(again == text);
}

// However late it comes, the caller's first byte is not one of the stream.
TEST_F(BrokenLinks, tellTheCallersFirstByteFromTheStream) {
  std::string text = noise(100, 1);
  for (int i = 0; i < 2000; ++i) {
    End end({}, text.size());
    auto [a, b] = connectionOf(listener);
    Link caller(broken, mended), host(broken, mended);
    caller.open(std::move(a));
    host.open(std::move(b));
    caller.breakOff("a test");
    host.breakOff("a test");
    auto [c, d] = connectionOf(listener);
    ASSERT_TRUE(host.adopt(std::move(d), Link::Side::host, 2, 0));
    std::thread receiver([&] {
      while (!end.step(host))
        ;
    });
    ASSERT_TRUE(caller.adopt(std::move(c), Link::Side::caller, 2, 0));
    caller.beginMessage({iovec{text.data(), text.size()}, iovec{}});
    caller.push();
    receiver.join();
    ASSERT_TRUE(end.got == text) << i;
  }
}

} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links whose connections break: over a relay that cuts at every byte of an
// exchange and swallows what it has not passed on, and with menders that make
// the connections again.
#include "runtime/comm/tcp/tcp_link.h"
#include "runtime/comm/tcp/tcp_mender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <condition_variable>
#include <cstring>
#include <netinet/in.h>
#include <poll.h>
#include <random>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

constexpr double patience = 60; // seconds; the machine may be busy

Endpoint loopback() {
  Endpoint place;
  place.family = AF_INET;
  place.address = {127, 0, 0, 1};
  return place;
}

// Both ends of a new connection.
std::pair<Socket, Socket> connectionOf(const Socket &listener) {
  auto place = listener.ownEndpoint();
  Socket one = std::move(*connectTo(*place, inSeconds(patience), 0));
  for (;;)
    if (auto other = acceptFrom(listener, 0); other && other->isOpen())
      return {std::move(one), std::move(*other)};
}

// Its other end reads an error, after what was sent.
void reset(Socket &socket) {
  linger now = {1, 0};
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  socket.close();
}

std::string noise(size_t bytes, unsigned seed) {
  std::mt19937 numbers(seed);
  std::string text(bytes, '\0');
  for (char &c : text)
    c = char(numbers());
  return text;
}

// One end of an exchange: sends messages, and receives as many bytes as the
// other end sends.
struct End {
  explicit End(std::vector<std::string> messages, size_t incoming)
      : messages(std::move(messages)), got(incoming, '\0') {}

  // Returns true once everything was sent and received.
  bool step(Link &link) {
    if (at < messages.size() && !sending) {
      std::string &text = messages[at];
      size_t half = text.size() / 2;
      link.beginMessage({iovec{text.data(), half},
                         iovec{text.data() + half, text.size() - half}});
      sending = true;
    }
    if (sending) {
      link.push();
      if (link.isPushed()) {
        link.endMessage();
        // As a caller does with its buffer.
        std::fill(messages[at].begin(), messages[at].end(), '?');
        ++at;
        sending = false;
      }
    } else {
      link.push(); // what is kept
    }
    taken += link.receive(
        std::array{iovec{got.data() + taken, got.size() - taken}, iovec{}});
    return at == messages.size() && taken == got.size() &&
           !link.state().mustPush;
  }

  std::vector<std::string> messages;
  std::string got;
  size_t at = 0, taken = 0;
  bool sending = false;
};

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
    Link left, right;
    left.open(std::move(a), broken, mended);
    right.open(std::move(b), broken, mended);
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
        ASSERT_TRUE(left.adopt(std::move(c), hasRight)) << passed;
        ASSERT_TRUE(right.adopt(std::move(d), hasLeft)) << passed;
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
  Link left, right;
  left.open(std::move(a), broken, mended);
  right.open(std::move(b), broken, mended);
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
      ASSERT_TRUE(left.adopt(std::move(c), hasRight));
      ASSERT_TRUE(right.adopt(std::move(d), hasLeft));
    }
  }
  EXPECT_TRUE(done);
  EXPECT_TRUE(two.got == all);
}

// A relay that acknowledges more than is kept, and then loses it, is noticed.
// So is a peer that claims what was never sent.
TEST_F(BrokenLinks, refuseToGoOnWithoutWhatIsGone) {
  auto [a, relay] = connectionOf(listener);
  Link left;
  left.open(std::move(a), broken, mended);
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
    EXPECT_FALSE(left.adopt(std::move(c), has)) << has;
  }
  auto [c, d] = connectionOf(listener);
  EXPECT_TRUE(left.adopt(std::move(c), 20000 - Link::leastKept));
  std::string again(Link::leastKept, '\0');
  while (left.push())
    ;
  EXPECT_TRUE(d.receive(again.data(), again.size(), inSeconds(patience)));
  EXPECT_EQ(again, text.substr(20000 - Link::leastKept));
}

// The links of two ranks of one job, in this process, with their menders.
class Menders : public ::testing::Test {
protected:
  struct Rank {
    Rank(int rank, const Bytes32 &key) : mesh(2, patience), all(2) {
      environment.rank = rank;
      environment.ranks = 2;
      mesh.key = key;
      mesh.listeners.push_back(std::move(*listenOn(loopback())));
    }
    Member member() const {
      return {{}, *mesh.listeners[0].ownEndpoint(), mesh.self};
    }
    LaunchEnvironment environment;
    Mesh mesh;
    Links all;
  };

  Menders() {
    for (Rank *rank : {&low, &high})
      rank->mesh.members = {low.member(), high.member()};
    auto [a, b] = connectionOf(low.mesh.listeners[0]);
    for (auto [rank, socket] : {std::pair{&low, &a}, {&high, &b}}) {
      std::vector<Socket> sockets(2);
      sockets[rank == &low] = std::move(*socket);
      rank->all.open(0, std::move(sockets));
    }
  }

  void startMender(Rank &rank, std::optional<Mender> &mender) {
    mender.emplace(rank.environment, rank.mesh, rank.all,
                   [this](int, int peer, const std::string &why) {
                     std::lock_guard<std::mutex> lock(mutex);
                     if (lost.empty())
                       lost = std::to_string(peer) + ": " + why;
                   });
  }

  std::string awaitLoss() {
    Deadline deadline = inSeconds(patience);
    for (;;) {
      std::lock_guard<std::mutex> lock(mutex);
      if (!lost.empty() || std::chrono::steady_clock::now() > deadline)
        return lost;
      usleep(10000);
    }
  }

  // Sends a message each way. Returns true if both arrive.
  bool exchange() {
    std::string there = noise(100, 1), back = noise(50, 2);
    End one({there}, back.size()), two({back}, there.size());
    Deadline deadline = inSeconds(patience);
    while (std::chrono::steady_clock::now() < deadline) {
      bool first = one.step(low.all.at(0, 1));
      if (two.step(high.all.at(0, 0)) && first)
        return one.got == back && two.got == there;
    }
    return false;
  }

  const Bytes32 key = randomBytes();
  Rank low{0, key}, high{1, key};
  std::mutex mutex;
  std::string lost;
  std::optional<Mender> lowMender, highMender;
};

// Whichever end has noticed, also while nobody uses the link.
TEST_F(Menders, makeAConnectionAgain) {
  startMender(low, lowMender);
  startMender(high, highMender);
  for (Rank *rank : {&low, &high, &low}) {
    EXPECT_TRUE(exchange());
    Link &link = rank->all.at(0, rank == &low);
    int before = link.state().connections;
    link.breakOff("a test");
    Deadline deadline = inSeconds(patience);
    while (link.state().connections == before &&
           std::chrono::steady_clock::now() < deadline)
      usleep(1000);
    EXPECT_FALSE(link.state().broken);
  }
  EXPECT_TRUE(exchange());
  EXPECT_EQ(lost, "");
}

// A process that has ended listens no more.
TEST_F(Menders, knowAProcessThatHasEnded) {
  high.mesh.listeners.clear();
  high.all.at(0, 0).breakOff("a test");
  auto began = std::chrono::steady_clock::now();
  startMender(low, lowMender);
  EXPECT_EQ(awaitLoss(), "1: connection closed");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

// A process that was started in the place of another one, and has its port.
TEST_F(Menders, refuseAProcessInThePlaceOfAnother) {
  high.mesh.members[0].self = randomBytes(); // of the one that was there
  startMender(low, lowMender);
  startMender(high, highMender);
  high.all.at(0, 0).breakOff("a test");
  EXPECT_EQ(awaitLoss(), "0: another process has its place");
  EXPECT_TRUE(low.all.at(0, 1).state().broken);
}

} // namespace

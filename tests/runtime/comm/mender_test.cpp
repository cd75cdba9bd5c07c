// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Menders, which make connections again, and the watch that waits for them, of
// several ranks in this process.
#include "runtime/comm/tcp/tcp_mender.h"
#include "runtime/comm/tcp/tcp_session.h"
#include "tests/runtime/comm/link_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::runtime::testing;

namespace {

// The ranks of one job, in this process, with a link between each two of them
// and their menders.
class Menders : public ::testing::Test {
protected:
  struct Rank {
    Rank(int rank, int ranks, const Bytes32 &key)
        : mesh(ranks, patience), all(ranks) {
      environment.rank = rank;
      environment.ranks = ranks;
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

  explicit Menders(int count = 2) {
    for (int rank = 0; rank < count; ++rank)
      ranks.push_back(std::make_unique<Rank>(rank, count, key));
    for (auto &rank : ranks)
      for (auto &other : ranks)
        rank->mesh.members[size_t(other->environment.rank)] = other->member();
    for (int link : {0, watchLink})
      for (int i = 0; i < count; ++i)
        for (int peer = 0; peer < i; ++peer)
          connect(link, *ranks[size_t(peer)], *ranks[size_t(i)]);
  }

  void connect(int link, Rank &one, Rank &two) {
    auto [a, b] = connectionOf(one.mesh.listeners[0]);
    for (auto [rank, other, socket] :
         {std::tuple{&one, &two, &a}, {&two, &one, &b}}) {
      rank->all.at(link, other->environment.rank).open(std::move(*socket));
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
      {
        std::lock_guard<std::mutex> lock(mutex);
        if (!lost.empty() || std::chrono::steady_clock::now() > deadline)
          return lost;
      }
      usleep(10000);
    }
  }

  // Sends a message each way. Returns true if both arrive.
  bool exchange() {
    std::string there = noise(100, 1), back = noise(50, 2);
    End one({there}, back.size()), two({back}, there.size());
    Deadline deadline = inSeconds(patience);
    while (std::chrono::steady_clock::now() < deadline) {
      bool first = one.step(low().all.at(0, 1));
      if (two.step(high().all.at(0, 0)) && first)
        return one.got == back && two.got == there;
    }
    return false;
  }

  const Bytes32 key = randomBytes();
  std::vector<std::unique_ptr<Rank>> ranks;
  Rank &low() { return *ranks[0]; }
  Rank &high() { return *ranks[1]; }
  std::mutex mutex;
  std::string lost;
  std::optional<Mender> lowMender, highMender;
};

// Whichever end has noticed, also while nobody uses the link.
TEST_F(Menders, makeAConnectionAgain) {
  startMender(low(), lowMender);
  startMender(high(), highMender);
  for (Rank *rank : {&low(), &high(), &low()}) {
    EXPECT_TRUE(exchange());
    Link &link = rank->all.at(0, rank == &low());
    int before = link.state().number;
    link.breakOff("a test");
    Deadline deadline = inSeconds(patience);
    while (link.state().number == before &&
           std::chrono::steady_clock::now() < deadline)
      usleep(1000);
    EXPECT_FALSE(link.state().broken);
  }
  EXPECT_TRUE(exchange());
  EXPECT_EQ(lost, "");
}

// Whichever end uses it first: the higher one calls, the lower one asks it to.
TEST_F(Menders, makeAConnectionWhenALinkIsFirstUsed) {
  startMender(low(), lowMender);
  startMender(high(), highMender);
  for (auto [number, user] : {std::pair{1, &low()}, {2, &high()}}) {
    Link &one = low().all.at(number, 1), &two = high().all.at(number, 0);
    EXPECT_FALSE(one.state().broken || two.state().broken);
    (user == &low() ? one : two).want();
    Deadline deadline = inSeconds(patience);
    while ((one.state().number == 0 || two.state().number == 0) &&
           std::chrono::steady_clock::now() < deadline)
      usleep(1000);
    EXPECT_GT(one.state().number, 0);
    EXPECT_EQ(one.state().number, two.state().number);
  }
  EXPECT_EQ(lost, "");
}

// A pause of the network ends no job that the watch would not end, however
// little time the ranks had to meet.
TEST_F(Menders, waitForAFirstConnectionAsLongAsTheWatch) {
  high().environment.seconds = 1;
  startMender(high(), highMender);
  Link &link = high().all.at(1, 0);
  link.want();
  usleep(2500000);
  startMender(low(), lowMender); // until now it has not answered
  Deadline deadline = inSeconds(patience);
  while (link.state().broken && std::chrono::steady_clock::now() < deadline)
    usleep(1000);
  EXPECT_FALSE(link.state().broken);
  EXPECT_EQ(lost, "");
}

// The message has the address, since no connection has shown that it is right.
TEST_F(Menders, sayWhereTheyCouldNotConnect) {
  low().mesh.listeners.clear();
  startMender(high(), highMender);
  high().all.at(1, 0).want();
  EXPECT_THAT(awaitLoss(),
              ::testing::StartsWith("0: rank 1 could not connect to rank 0 at "
                                    "'127.0.0.1' port "));
}

// So is the reason, whatever link it is of.
TEST_F(Menders, sayThatAnotherProcessHasThePlace) {
  high().mesh.members[0].self = randomBytes(); // of the one that was there
  startMender(low(), lowMender);
  startMender(high(), highMender);
  high().all.at(1, 0).want();
  std::string loss = awaitLoss();
  EXPECT_THAT(loss, ::testing::StartsWith("0: rank 1 could not connect to rank "
                                          "0 at '127.0.0.1' port "));
  EXPECT_THAT(loss, ::testing::EndsWith(" (another process has its place)"));
}

// No firewall is to blame, and time does not help.
TEST_F(Menders, sayThatDescriptorsAreLacking) {
  startMender(low(), lowMender);
  startMender(high(), highMender);
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  int firstFree = dup(0);
  close(firstFree);
  rlimit few = {rlim_t(firstFree), before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  high().all.at(1, 0).want();
  std::string loss = awaitLoss();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(loss, ::testing::StartsWith("0: rank 1 could not connect to rank "
                                          "0 at '127.0.0.1' port "));
  EXPECT_THAT(
      loss, ::testing::EndsWith("; raise the limit of open files (ulimit -n)"));
}

// A process that has ended listens no more.
TEST_F(Menders, knowAProcessThatHasEnded) {
  high().mesh.listeners.clear();
  high().all.at(0, 0).breakOff("a test");
  auto began = std::chrono::steady_clock::now();
  startMender(low(), lowMender);
  EXPECT_EQ(awaitLoss(), "1: connection closed");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

// A process that was started in the place of another one, and has its port.
TEST_F(Menders, refuseAProcessInThePlaceOfAnother) {
  high().mesh.members[0].self = randomBytes(); // of the one that was there
  startMender(low(), lowMender);
  startMender(high(), highMender);
  high().all.at(0, 0).breakOff("a test");
  EXPECT_EQ(awaitLoss(), "0: another process has its place");
  // The other end may notice later.
  Link &link = low().all.at(0, 1);
  Deadline deadline = inSeconds(patience);
  while (!link.state().broken && std::chrono::steady_clock::now() < deadline)
    usleep(1000);
  EXPECT_TRUE(link.state().broken);
  EXPECT_EQ(link.state().number, 1);
}

// The call of a process that has called again since, and has more bytes now,
// arrives late.
TEST_F(Menders, ignoreACallOlderThanTheConnection) {
  startMender(low(), lowMender);
  Greeting greeting =
      greetingFor(high().environment, 0, 0, high().mesh.self, {});
  greeting.connection = 1;
  greeting.called = low().mesh.self;
  Result<Socket> socket =
      connectTo(low().member().listener, inSeconds(patience), patience);
  ASSERT_TRUE(socket);
  Conversation conversation = {key, {}, {}};
  EXPECT_FALSE(introduce(*socket, greeting, conversation, inSeconds(patience)));
  EXPECT_FALSE(low().all.at(0, 1).state().broken);
  EXPECT_TRUE(exchange());
}

// A lower rank asks for a connection to be made again, and is late: it is.
TEST_F(Menders, ignoreAQuestionOlderThanTheConnection) {
  startMender(low(), lowMender);
  startMender(high(), highMender);
  Link &link = high().all.at(0, 0);
  link.breakOff("a test");
  Deadline deadline = inSeconds(patience);
  while (link.state().number == 1 &&
         std::chrono::steady_clock::now() < deadline)
    usleep(1000);
  Greeting greeting = greetingFor(low().environment, 1, 0, low().mesh.self, {});
  greeting.connection = 1;
  greeting.called = high().mesh.self;
  Result<Socket> socket =
      connectTo(high().member().listener, inSeconds(patience), patience);
  ASSERT_TRUE(socket);
  Conversation conversation = {key, {}, {}};
  EXPECT_TRUE(introduce(*socket, greeting, conversation, inSeconds(patience)));
  EXPECT_TRUE(exchange());
  EXPECT_EQ(link.state().number, 2);
}

class ManyMenders : public Menders {
protected:
  ManyMenders() : Menders(6) {}
};

// Four ranks listen and do not answer. Each of their calls takes five seconds.
TEST_F(ManyMenders, doNotWaitForRanksThatDoNotAnswer) {
  std::optional<Mender> mender, other;
  for (int peer = 0; peer < 5; ++peer)
    ranks[5]->all.at(0, peer).breakOff("a test");
  startMender(*ranks[4], other);
  startMender(*ranks[5], mender);
  Link &link = ranks[5]->all.at(0, 4);
  auto began = std::chrono::steady_clock::now();
  while (link.state().broken && std::chrono::steady_clock::now() - began <
                                    std::chrono::duration<double>(patience))
    usleep(1000);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

// With the watch, whose thread judges what menders have given up.
class Sessions : public Menders {
protected:
  void startSession(Rank &rank, std::optional<TcpSession> &session) {
    session.emplace(rank.environment.rank, true, patience,
                    std::vector<std::string>(2, "here"), rank.all);
  }

  std::optional<TcpSession> lowSession, highSession;
};

// Its last word has arrived, and nobody has looked yet.
TEST_F(Sessions, doNotCallARankLostThatHasLeft) {
  low().all.at(watchLink, 1).say(byteOf({Word::leaves}));
  high().all.at(watchLink, 0).breakOff("a test");
  startSession(high(), highSession);
  highSession->lost(watchLink, 0, "a test");
  highSession->leave();
}

// Rank 0 ends once the others have its last word, also if the connection breaks
// before that.
TEST_F(Sessions, bringTheLastWordOverABrokenConnection) {
  startSession(low(), lowSession);
  startSession(high(), highSession);
  for (auto [rank, session, mender] :
       {std::tuple{&low(), &lowSession, &lowMender},
        {&high(), &highSession, &highMender}})
    mender->emplace(rank->environment, rank->mesh, rank->all,
                    [session](int link, int peer, const std::string &why) {
                      (*session)->lost(link, peer, why);
                    });
  std::thread leaves([&] {
    low().all.at(watchLink, 1).breakOff("a test");
    lowSession->leave();
    lowMender.reset();
    // As the end of the process does.
    low().mesh.listeners.clear();
    low().all.at(watchLink, 1).breakOff("the end");
  });
  highSession->leave();
  leaves.join();
  highMender.reset(); // it calls the session
}

} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// TCP jobs as processes: the bits of collectives, and how a job ends when a
// rank is missing, is killed, stopped or fails, or when a stranger connects. In
// each case all ranks end, and one line says why.
#include "runtime/abi/connections.h"
#include "runtime/comm/launch_environment.h"
#include "tests/runtime/comm/tcp_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::runtime::testing;
using ::testing::HasSubstr;

namespace {

class Tcp : public TcpJob {
protected:
  /// Returns the open files that rank 0 needs, as it says when they are few.
  int64_t namedFiles(int ranks, Variables variables) {
    variables["FILES"] = "24";
    startAll(ranks, {"pairs"}, variables);
    EXPECT_EQ(ends(patience), std::vector<int>(size_t(ranks), 3)) << printed();
    port = freePort();
    std::string text = error(), words = "needs up to ";
    size_t at = text.find(words);
    EXPECT_NE(at, std::string::npos) << text;
    return atoll(text.c_str() + at + words.size());
  }
};

// Each process runs the cases and compares with ranks as threads. Those of one
// node share memory.
TEST_F(Tcp, collectivesHaveTheBitsOfThreads) {
  for (auto [ranks, perNode] :
       {std::pair{2, "0"}, {4, "0"}, {2, "1"}, {3, "1"}, {4, "1"}}) {
    startAll(ranks, {"cases"}, {{"PER_NODE", perNode}});
    EXPECT_EQ(ends(2 * patience), std::vector<int>(size_t(ranks), 0))
        << printed();
    port = freePort();
  }
}

// Ranks of a node share memory, in which they hand on what they have gathered
// and add up. Nodes of different sizes exchange all with all.
TEST_F(Tcp, virtualNodesChangeNoBit) {
  for (auto [ranks, perNode] : {std::pair{6, "3"}, {5, "2"}}) {
    startAll(ranks, {"cases"}, {{"PER_NODE", perNode}});
    EXPECT_EQ(ends(2 * patience), std::vector<int>(size_t(ranks), 0))
        << printed();
    port = freePort();
  }
}

// They would wait for other ranks than those that wait for them.
TEST_F(Tcp, ranksThatDisagreeOnTheirNodeEnd) {
  for (int rank = 0; rank < 4; ++rank) {
    Variables variables = torchrun(rank, 4);
    if (rank != 3)
      variables["PER_NODE"] = "2";
    start(variables, {"cases"});
  }
  EXPECT_EQ(ends(patience), std::vector<int>(4, 1)) << printed();
  EXPECT_THAT(printed(), HasSubstr("rank 3 has 4 ranks on a node, but rank 0 "
                                   "has 2; start all ranks with the same "
                                   "--ranks-per-node"));
}

// Connections that close, at any place of any collective, are made again, and
// nothing is lost or comes twice.
TEST_F(Tcp, connectionsThatCloseAreMadeAgain) {
  for (int ranks : {2, 3}) {
    startAll(ranks, {"cuts"}, {{"SILENCE", "60"}, {"PER_NODE", "1"}});
    EXPECT_EQ(ends(4 * patience), std::vector<int>(size_t(ranks), 0))
        << printed();
    EXPECT_THAT(printed(), HasSubstr(" has made its connection to rank 0 "));
    port = freePort();
  }
}

// On values of each type, and on groups of ranks. More than eight ranks pass
// small values on in rounds.
TEST_F(Tcp, typedCollectivesEqualPlainLoops) {
  for (int ranks : {1, 2, 5, 8, 13}) {
    startAll(ranks, {"typed"});
    EXPECT_EQ(ends(2 * patience), std::vector<int>(size_t(ranks), 0))
        << printed();
    port = freePort();
  }
}

// Slurm announces no address: the ranks derive node and port from its
// variables.
TEST_F(Tcp, srunsRanksMeetOnItsFirstNode) {
  for (int rank = 0; rank < 2; ++rank)
    start({{"SLURM_PROCID", std::to_string(rank)},
           {"SLURM_STEP_NUM_TASKS", "2"},
           {"SLURM_LOCALID", std::to_string(rank)},
           {"SLURM_STEP_NODELIST", "localhost"},
           {"SLURM_JOB_ID", std::to_string(getpid())},
           {"SLURM_STEP_ID", "0"}},
          {"leave"});
  EXPECT_EQ(ends(patience), std::vector<int>(2, 0)) << printed();
}

// torchrun's agent uses the announced port for its store; the job takes the
// next.
TEST_F(Tcp, leavesTorchrunsPortToItsAgent) {
  Result<std::vector<Socket>> store = listenOn("localhost", port);
  ASSERT_TRUE(store);
  startAll(2, {"leave"}, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(ends(patience), std::vector<int>(2, 0)) << printed();
}

// The kernel closes the connections of a killed rank, and rank 0 names it.
TEST_F(Tcp, aKilledRankIsNamed) {
  startAll(3, {"kill", "2"});
  EXPECT_EQ(ends(patience), (std::vector<int>{5, 5, -SIGKILL}));
  EXPECT_THAT(error(), HasSubstr("rank 2 on node '"));
  EXPECT_THAT(error(), HasSubstr("was lost"));
}

// All other ranks notice the end of rank 0, but only one prints.
TEST_F(Tcp, aKilledRank0IsNamedOnce) {
  startAll(4, {"kill", "0"});
  EXPECT_EQ(ends(patience), (std::vector<int>{-SIGKILL, 5, 5, 5}));
  EXPECT_THAT(error(), HasSubstr("rank 0 on node '"));
}

// A stopped process keeps its connections; only its silence shows.
TEST_F(Tcp, aStoppedRankIsNamed) {
  startAll(3, {"stop", "1"}, {{"SILENCE", "2"}});
  std::vector<int> codes = ends(10);
  EXPECT_EQ(codes, (std::vector<int>{5, unended, 5}));
  EXPECT_THAT(error(), HasSubstr("rank 1 on node '"));
  EXPECT_THAT(error(), HasSubstr("no answer for 2 s"));
}

// The rank that fails has printed the reason, so the others print nothing.
TEST_F(Tcp, aRankThatFailsSpeaksAlone) {
  startAll(3, {"fail", "1"});
  EXPECT_EQ(ends(patience), std::vector<int>(3, 3));
  EXPECT_EQ(error(), "error: rank 1 had enough");
}

// A rank that refuses its input ends the others with the same code, which no
// restart follows.
TEST_F(Tcp, aRankThatRefusesItsInputGivesTheCode) {
  startAll(3, {"refuse", "1"});
  EXPECT_EQ(ends(patience), std::vector<int>(3, 1));
  EXPECT_EQ(error(), "error: rank 1 read nonsense");
}

// Whichever end has made it, a connection lasts as long as the watch would wait
// for a silent rank. Without a limit the system decides.
TEST_F(Tcp, connectionsBreakAfterTheSilenceThatIsAllowed) {
  for (const char *silence : {"60", "300", "0"}) {
    startAll(4, {"timeouts"}, {{"SILENCE", silence}, {"PER_NODE", "1"}});
    EXPECT_EQ(ends(patience), std::vector<int>(4, 0)) << printed();
    port = freePort();
  }
}

// Each rank counts before it connects. Rank 0 has 3 * 4 connections.
TEST_F(Tcp, tooFewOpenFilesAreNamedAtTheStart) {
  startAll(4, {"cases"}, {{"FILES", "24"}});
  EXPECT_EQ(ends(patience), std::vector<int>(4, 3));
  EXPECT_THAT(error(), HasSubstr("rank 0 of 4 needs up to "));
  EXPECT_THAT(error(), HasSubstr(" open files, 12 of them connections"));
  EXPECT_THAT(error(), HasSubstr("may have 24; raise the hard limit"));
}

// The number that is named is enough, also for ranks of one node that all
// exchange something with each other on each channel.
TEST_F(Tcp, theNumberOfOpenFilesThatIsNamedIsEnough) {
  std::string files = std::to_string(namedFiles(4, {{"PER_NODE", "1"}}));
  startAll(4, {"cases"}, {{"FILES", files}, {"PER_NODE", "1"}});
  EXPECT_EQ(ends(patience), std::vector<int>(4, 0)) << printed();
}
TEST_F(Tcp, theNumberOfOpenFilesThatIsNamedIsEnoughForAllPairs) {
  std::string files = std::to_string(namedFiles(32, {}));
  std::string before = printed();
  startAll(32, {"pairs"}, {{"FILES", files}});
  EXPECT_EQ(ends(2 * patience), std::vector<int>(32, 0)) << printed();
  EXPECT_EQ(printed(), before);
}

// A limit that may be enough is a warning. If it is not, the end says so.
TEST_F(Tcp, aLimitOfOpenFilesThatIsTooLowIsNamedWhenItIsReached) {
  int64_t files =
      namedFiles(32, {}) - mostConnections(0, 32) + usualConnections(0, 32, 0);
  startAll(32, {"pairs"}, {{"FILES", std::to_string(files)}});
  EXPECT_EQ(ends(2 * patience), std::vector<int>(32, 5));
  EXPECT_THAT(printed(), HasSubstr("warning: rank 0 of 32 needs up to "));
  EXPECT_THAT(printed(), HasSubstr("; raise the limit of open files"));
}

TEST_F(Tcp, ranksUseTheInterfaceThatWasChosen) {
  startAll(3, {"cases"}, {{"FSDPC_INTERFACE", "lo"}});
  EXPECT_EQ(ends(patience), std::vector<int>(3, 0)) << printed();
  startAll(1, {"cases"}, {{"FSDPC_INTERFACE", "none0"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(ends(patience), std::vector<int>(1, 1));
  EXPECT_THAT(error(), HasSubstr("'none0' is no interface of this machine"));
  EXPECT_THAT(error(), HasSubstr("'lo' (127.0.0.1"));
}

// Rank 0 knows who is missing, so it prints, and tells the ranks that came.
TEST_F(Tcp, missingRanksAreNamed) {
  for (int rank : {0, 2}) {
    Variables variables = torchrun(rank, 4);
    variables["FSDPC_JOIN_SECONDS"] = "2";
    start(variables, {"leave"});
  }
  EXPECT_EQ(ends(patience), std::vector<int>(2, 5));
  EXPECT_THAT(error(), HasSubstr("ranks 1, 3 of 4"));
  EXPECT_THAT(error(), HasSubstr("'localhost' port " + std::to_string(port)));
  EXPECT_THAT(error(), HasSubstr("within 2 s"));
}

// Without rank 0, one rank of the node prints.
TEST_F(Tcp, aMissingRank0IsToldByOneRank) {
  for (int rank : {1, 2}) {
    Variables variables = torchrun(rank, 3);
    variables["FSDPC_JOIN_SECONDS"] = "1";
    start(variables, {"leave"});
  }
  EXPECT_EQ(ends(patience), std::vector<int>(2, 5));
  EXPECT_THAT(error(),
              HasSubstr("rank 1 could not connect to rank 0 at 'localhost'"));
}

// A port in use is an error that names the variable for another one.
TEST_F(Tcp, aTakenPortSaysWhatToDo) {
  Result<std::vector<Socket>> taken = listenOn("localhost", port);
  ASSERT_TRUE(taken);
  start(torchrun(0, 2), {"leave"});
  EXPECT_EQ(ends(patience), std::vector<int>{5});
  EXPECT_THAT(error(), HasSubstr("cannot listen"));
  EXPECT_THAT(error(), HasSubstr("FSDPC_PORT"));
}

// Connections that speak another protocol, or nothing, change nothing.
TEST_F(Tcp, strangersAreTurnedAway) {
  start(torchrun(0, 2), {"leave"});
  Deadline deadline = inSeconds(patience);
  Result<Socket> silent = connectTo("localhost", port, deadline, patience);
  while (!silent && std::chrono::steady_clock::now() < deadline) {
    usleep(10000);
    silent = connectTo("localhost", port, deadline, patience);
  }
  Result<Socket> loud = connectTo("localhost", port, deadline, patience);
  ASSERT_TRUE(loud);
  std::string request = "GET / HTTP/1.0\r\n\r\n" + std::string(400, ' ');
  EXPECT_TRUE(loud->send(request.data(), request.size(), deadline));
  char reply;
  EXPECT_FALSE(loud->receive(&reply, 1, deadline));
  start(torchrun(1, 2), {"leave"});
  EXPECT_EQ(ends(patience), std::vector<int>(2, 0)) << printed();
}

// A rank of another job with the same port and, from its shell, the same
// secret.
TEST_F(Tcp, aRankOfAnotherJobIsTurnedAway) {
  for (auto [rank, job] : {std::pair{0, "mine"}, {1, "other"}, {1, "mine"}}) {
    Variables variables = torchrun(rank, 2);
    variables["FSDPC_SECRET"] = "the secret of several jobs";
    variables["TORCHELASTIC_RUN_ID"] = job;
    start(variables, {"leave"});
    Deadline deadline = inSeconds(patience);
    while (job == std::string("other") && printed().empty() &&
           std::chrono::steady_clock::now() < deadline)
      usleep(10000);
  }
  EXPECT_EQ(ends(patience), (std::vector<int>{0, 5, 0}));
  EXPECT_THAT(error(), HasSubstr("another job's rank 0 listens at "));
}

// Slurm's lists of hosts have ranges in brackets, several of them if need be.
TEST(Hosts, firstOfSlurmsList) {
  EXPECT_EQ(firstHost("gpu7"), "gpu7");
  EXPECT_EQ(firstHost("gpu7,gpu9"), "gpu7");
  EXPECT_EQ(firstHost("gpu[003-006,9],login"), "gpu003");
  EXPECT_EQ(firstHost("rack[2,4]node[10-12]"), "rack2node10");
  EXPECT_EQ(firstHost(""), "");
}

} // namespace

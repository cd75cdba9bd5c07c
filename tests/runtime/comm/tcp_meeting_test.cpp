// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Strangers at the meeting of a TCP job: connections that are silent, that
// guess, that replay or that know the job's secret and misbehave. None of them
// changes an exit code, delays the job, or ends it without a line.
#include "runtime/comm/tcp/secret.h"
#include "runtime/comm/tcp/tcp_meeting.h"
#include "tests/runtime/comm/tcp_job.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <dirent.h>
#include <poll.h>
#include <random>
#include <sys/stat.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::runtime::testing;
using ::testing::HasSubstr;

namespace {

const std::string secret = "a secret that is long enough";

template <typename Message>
std::span<const uint8_t> bytesOf(const Message &message) {
  return {reinterpret_cast<const uint8_t *>(&message), sizeof message};
}

// A folder for secrets.
struct Folder {
  explicit Folder(mode_t mode) {
    char name[] = "/tmp/fsdpc-folder-XXXXXX";
    path = mkdtemp(name);
    chmod(path.c_str(), mode);
  }
  ~Folder() {
    for (const std::string &file : files())
      unlink((path + "/" + file).c_str());
    rmdir(path.c_str());
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    DIR *list = opendir(path.c_str());
    for (dirent *entry; (entry = readdir(list));)
      if (entry->d_name[0] != '.')
        names.push_back(entry->d_name);
    closedir(list);
    return names;
  }
  std::string path;
};

class Meeting : public TcpJob {
protected:
  Variables withSecret(int rank, int ranks) {
    Variables variables = torchrun(rank, ranks);
    variables["FSDPC_SECRET"] = secret;
    return variables;
  }

  // Connects to rank 0 once it listens.
  Socket connectSoon(const std::string &address = "localhost") {
    Deadline deadline = inSeconds(patience);
    for (;;) {
      Result<Socket> socket = connectTo(address, port, deadline, patience);
      if (socket)
        return std::move(*socket);
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << socket.error().message;
        return {};
      }
      usleep(5000);
    }
  }

  // Says hello and hears the challenge. `talk` is then ready for a greeting.
  Socket converse(Conversation &talk) {
    Socket socket = connectSoon();
    talk = {digestOf(secret), randomBytes(), {}};
    Hello hello = {protocol, talk.caller};
    Challenge challenge;
    EXPECT_TRUE(socket.send(&hello, sizeof hello, soon()));
    EXPECT_TRUE(socket.receive(&challenge, sizeof challenge, soon()));
    EXPECT_TRUE(parseChallenge(bytesOf(challenge), talk));
    return socket;
  }

  Greeting greetingOf(int rank, int ranks, int link, const Bytes32 &self) {
    Greeting greeting = {};
    greeting.rank = rank;
    greeting.ranks = ranks;
    greeting.link = link;
    greeting.process = getpid();
    greeting.self = self;
    greeting.job = digestOf(".");
    return greeting;
  }

  // Greets as a rank that knows the secret, and returns the verdict.
  Verdict greet(Socket &socket, int rank, int ranks, int link,
                const Bytes32 &self) {
    Conversation talk;
    socket = converse(talk);
    Greeting greeting = greetingOf(rank, ranks, link, self);
    seal(greeting, talk);
    Answer answer = {};
    EXPECT_TRUE(socket.send(&greeting, sizeof greeting, soon()));
    EXPECT_TRUE(socket.receive(&answer, sizeof answer, soon()));
    EXPECT_TRUE(parseAnswer(bytesOf(answer), talk));
    return answer.verdict;
  }

  void awaitOutput(const std::string &text) {
    Deadline deadline = inSeconds(patience);
    while (printed().find(text) == std::string::npos &&
           std::chrono::steady_clock::now() < deadline)
      usleep(10000);
  }

  Deadline soon() { return inSeconds(patience); }
};

// A stranger that knows the layout of every message, but not the secret, gets
// no answer, and its words are not heard.
TEST_F(Meeting, aStrangerCannotJoin) {
  start(withSecret(0, 2), {"leave"});
  Conversation talk;
  Socket stranger = converse(talk);
  talk.key = digestOf("a guess");
  Greeting greeting = greetingOf(1, 2, watchLink, randomBytes());
  seal(greeting, talk);
  EXPECT_TRUE(stranger.send(&greeting, sizeof greeting, soon()));
  uint8_t end = 128; // the exit code 0, as a word
  (void)stranger.send(&end, 1, soon());
  EXPECT_FALSE(stranger.receive(&end, 1, soon()));
  start(withSecret(1, 2), {"leave"});
  EXPECT_EQ(ends(patience), std::vector<int>(2, 0)) << printed();
}

// Each connection has its own limit, and nobody waits for another's.
TEST_F(Meeting, silentConnectionsDelayNobody) {
  start(withSecret(0, 2), {"leave"});
  std::vector<Socket> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(connectSoon());
    if (i % 2)
      (void)silent.back().send(protocol.data(), 1 + size_t(i) % 7, soon());
  }
  auto began = std::chrono::steady_clock::now();
  start(withSecret(1, 2), {"leave"});
  EXPECT_EQ(ends(patience), std::vector<int>(2, 0)) << printed();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

// A rank whose first connection broke, or only seems to stand, takes its own
// place again; once it is gone, another process may have the place.
TEST_F(Meeting, aRankMayCallAgain) {
  start(withSecret(0, 3), {"leave"});
  Bytes32 self = randomBytes();
  Socket first, second, third;
  EXPECT_EQ(greet(first, 1, 3, watchLink, self), Verdict::welcome);
  EXPECT_EQ(greet(second, 1, 3, watchLink, self), Verdict::welcome);
  EXPECT_EQ(greet(third, 1, 3, watchLink, randomBytes()), Verdict::rankTaken);
  for (Socket *socket : {&first, &second, &third})
    socket->close();
  for (int rank : {1, 2})
    start(withSecret(rank, 3), {"leave"});
  EXPECT_EQ(ends(patience), std::vector<int>(3, 0)) << printed();
}

// Two processes that are both rank 2: the second one names both and ends; the
// job goes on.
TEST_F(Meeting, aDuplicateIsRefusedAndNamesBoth) {
  for (int rank : {0, 2, 2})
    start(withSecret(rank, 3), {"leave"});
  awaitOutput("called for it too");
  std::string line = error();
  for (size_t i : {1, 2})
    EXPECT_THAT(line, HasSubstr("process " + std::to_string(processes[i])));
  EXPECT_THAT(line, HasSubstr("rank 2 of 3 was refused"));
  start(withSecret(1, 3), {"leave"});
  std::vector<int> codes = ends(patience);
  std::sort(codes.begin(), codes.end());
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0, 1})) << printed();
}

// Ranks with different secrets do not meet, and both sides say why.
TEST_F(Meeting, aWrongSecretIsNamed) {
  for (int rank : {0, 1}) {
    Variables variables = withSecret(rank, 2);
    variables["FSDPC_SECRET"] += std::to_string(rank);
    variables["FSDPC_JOIN_SECONDS"] = "1";
    start(variables, {"leave"});
  }
  EXPECT_EQ(ends(patience), std::vector<int>(2, 5));
  EXPECT_THAT(printed(), HasSubstr("did not know the job's secret"));
  EXPECT_THAT(printed(), HasSubstr("or knows another secret"));
}

// The secret of a job lies in a file for nobody else, until all ranks have met.
TEST_F(Meeting, theSecretIsPrivateAndShortLived) {
  Folder folder(0700);
  Variables variables = torchrun(0, 2);
  variables["XDG_RUNTIME_DIR"] = folder.path;
  start(variables, {"leave"});
  connectSoon();
  // The file is there a moment before the secret is in it.
  Deadline deadline = soon();
  struct stat state = {};
  while (state.st_size == 0 && std::chrono::steady_clock::now() < deadline) {
    usleep(1000);
    if (std::vector<std::string> files = folder.files(); !files.empty())
      stat((folder.path + "/" + files[0]).c_str(), &state);
  }
  ASSERT_EQ(folder.files().size(), 1u);
  EXPECT_THAT(folder.files()[0],
              HasSubstr("localhost-" + std::to_string(port)));
  EXPECT_EQ(state.st_mode & 0777, 0600u);
  EXPECT_EQ(state.st_size, 32);
  variables["RANK"] = variables["LOCAL_RANK"] = "1";
  start(variables, {"leave"});
  EXPECT_EQ(ends(patience), std::vector<int>(2, 0)) << printed();
  EXPECT_TRUE(folder.files().empty());
}

// A folder that others can enter is passed over, by all ranks.
TEST_F(Meeting, aSharedFolderIsNotUsed) {
  Folder folder(0755);
  for (int rank : {0, 1}) {
    Variables variables = torchrun(rank, 2);
    variables["XDG_RUNTIME_DIR"] = folder.path;
    start(variables, {"leave"});
    if (rank == 0)
      connectSoon();
    EXPECT_TRUE(folder.files().empty());
  }
  EXPECT_EQ(ends(patience), std::vector<int>(2, 0)) << printed();
}

// The file that a killed rank 0 left is replaced by the next job's.
TEST_F(Meeting, aFileLeftBehindIsReplaced) {
  Folder folder(0700);
  Variables variables = {{"XDG_RUNTIME_DIR", folder.path}};
  startAll(1, {"leave"},
           {{"XDG_RUNTIME_DIR", folder.path}, {"WORLD_SIZE", "2"}});
  Deadline deadline = soon();
  while (folder.files().empty() && std::chrono::steady_clock::now() < deadline)
    usleep(1000);
  kill(processes[0], SIGKILL);
  EXPECT_EQ(ends(patience), std::vector<int>{-SIGKILL});
  EXPECT_EQ(folder.files().size(), 1u);
  startAll(2, {"leave"}, variables);
  EXPECT_EQ(ends(patience), std::vector<int>(2, 0)) << printed();
  EXPECT_TRUE(folder.files().empty());
}

// Ranks that share no folder need FSDPC_SECRET, and are told soon.
TEST_F(Meeting, ranksWithoutASharedFolderNeedASecret) {
  Folder folders[2] = {Folder(0700), Folder(0700)};
  for (int rank : {0, 1}) {
    Variables variables = torchrun(rank, 2);
    variables["XDG_RUNTIME_DIR"] = folders[rank].path;
    variables["FSDPC_JOIN_SECONDS"] = rank ? "300" : "8";
    start(variables, {"leave"});
  }
  EXPECT_EQ(ends(patience), (std::vector<int>{5, 1}));
  EXPECT_THAT(printed(), HasSubstr("set FSDPC_SECRET to the same random text"));
}

// Only the interface of MASTER_ADDR listens.
TEST_F(Meeting, onlyTheNamedInterfaceListens) {
  Variables variables = withSecret(0, 2);
  variables["MASTER_ADDR"] = "127.0.0.2";
  start(variables, {"leave"});
  connectSoon("127.0.0.2");
  EXPECT_FALSE(connectTo("127.0.0.1", port, soon(), patience));
  EXPECT_FALSE(connectTo("::1", port, soon(), patience));
  variables = withSecret(1, 2);
  variables["MASTER_ADDR"] = "127.0.0.2";
  start(variables, {"leave"});
  EXPECT_EQ(ends(patience), std::vector<int>(2, 0)) << printed();
}

// A rank of the job that sends words which no rank sends ends it with a line,
// and never with the code that it likes.
TEST_F(Meeting, wordsOfARankAreChecked) {
  for (uint8_t byte : {128, 2, 127}) {
    start(withSecret(0, 2), {"stop", "9"});
    Socket socket;
    EXPECT_EQ(greet(socket, 1, 2, watchLink, randomBytes()), Verdict::welcome);
    Start word;
    EXPECT_TRUE(socket.receive(&word, sizeof word, soon()));
    EXPECT_TRUE(socket.send(&byte, 1, soon()));
    EXPECT_EQ(ends(patience), std::vector<int>{5});
    EXPECT_THAT(printed(), HasSubstr("it sent a word that no rank sends"));
    EXPECT_EQ(ftruncate(output, 0), 0);
    port = freePort();
  }
}

// Rank 1 listens for rank 2, which is this test, on the interface by which it
// reached rank 0 only. Silent callers, a guessed key, a greeting meant for rank
// 0 or for another process, a watch and a second call for one connection get
// nowhere and delay nobody.
TEST_F(Meeting, peersReceiveOnlyRanks) {
  for (int rank : {0, 1}) {
    Variables variables = withSecret(rank, 3);
    variables["MASTER_ADDR"] = "127.0.0.1";
    start(variables, {"leave"});
  }
  Socket watch;
  Bytes32 self = randomBytes();
  EXPECT_EQ(greet(watch, 2, 3, watchLink, self), Verdict::welcome);
  Start word;
  std::vector<Member> members(3);
  ASSERT_TRUE(watch.receive(&word, sizeof word, soon()));
  ASSERT_TRUE(watch.receive(members.data(), bytesOf(members).size(), soon()));
  EXPECT_TRUE(areEqual(word.members, digestOf(bytesOf(members))));
  const Endpoint &place = members[1].listener;
  EXPECT_EQ(textOf(place), "'127.0.0.1' port " + std::to_string(place.port));
  EXPECT_FALSE(connectTo("127.0.0.2", place.port, soon(), patience));

  auto began = std::chrono::steady_clock::now();
  std::vector<Socket> silent;
  for (int i = 0; i < 20; ++i)
    silent.push_back(std::move(*connectTo(place, soon(), patience)));
  LaunchEnvironment environment;
  environment.rank = 2;
  environment.ranks = 3;
  environment.job = ".";
  auto call = [&](Socket &socket, const char *key, int to, int link,
                  const Bytes32 &called) {
    socket = std::move(*connectTo(place, soon(), patience));
    Conversation talk = {digestOf(key), {}, {}};
    Greeting greeting = greetingFor(environment, to, link, self, {});
    greeting.connection = 1;
    greeting.called = called;
    return introduce(socket, greeting, talk, soon());
  };
  Socket toRank1[channels], other;
  const Bytes32 &rank1 = members[1].self;
  EXPECT_FALSE(call(other, "a guess of the secret", 1, 0, rank1));
  EXPECT_FALSE(call(other, secret.c_str(), 1, watchLink, rank1));
  EXPECT_FALSE(call(other, secret.c_str(), 0, 0, rank1));
  auto misled = call(other, secret.c_str(), 1, 0, randomBytes());
  ASSERT_TRUE(misled);
  EXPECT_EQ(misled->verdict, Verdict::otherProcess);
  for (int link = 0; link < channels; ++link) {
    auto answer = call(toRank1[link], secret.c_str(), 1, link, rank1);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->verdict, Verdict::welcome);
  }
  EXPECT_FALSE(call(other, secret.c_str(), 1, 0, rank1));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(4));
  watch.close();
  EXPECT_EQ(ends(patience), std::vector<int>(2, 5));
  EXPECT_THAT(error(), HasSubstr("rank 2 on node '"));
}

// Random bytes, cut and damaged greetings at any point of the conversation.
TEST_F(Meeting, damagedGreetingsChangeNothing) {
  std::mt19937 random(11);
  start(withSecret(0, 2), {"leave"});
  for (int i = 0; i < 300; ++i) {
    Conversation talk = {};
    bool late = random() % 2;
    Socket socket = late ? converse(talk) : connectSoon();
    Greeting greeting = greetingOf(1, 2, int(random() % links), randomBytes());
    seal(greeting, talk);
    std::vector<uint8_t> bytes(random() % 400);
    for (uint8_t &byte : bytes)
      byte = uint8_t(random());
    if (random() % 2) { // a greeting with a flipped bit, or its beginning
      bytes.assign(bytesOf(greeting).begin(), bytesOf(greeting).end());
      bytes[random() % bytes.size()] ^= uint8_t(1 << random() % 8);
      if (random() % 2)
        bytes.resize(random() % bytes.size());
    }
    (void)socket.send(bytes.data(), bytes.size(), soon());
  }
  start(withSecret(1, 2), {"leave"});
  EXPECT_EQ(ends(patience), std::vector<int>(2, 0)) << printed();
}

// A process that listens in rank 0's place and answers anything at all: the
// joining rank ends by itself, with one line and its own code.
TEST_F(Meeting, aFalseRank0ChangesNothing) {
  std::mt19937 random(11);
  Result<std::vector<Socket>> listeners = listenOn("127.0.0.1", port);
  ASSERT_TRUE(listeners);
  Variables variables = withSecret(1, 2);
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["FSDPC_JOIN_SECONDS"] = "1";
  start(variables, {"leave"});
  Deadline deadline = inSeconds(7);
  int served = 0;
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd entry = {(*listeners)[0].descriptor(), POLLIN, 0};
    poll(&entry, 1, 100);
    Result<Socket> caller = acceptFrom((*listeners)[0], patience);
    if (!caller || !caller->isOpen())
      continue;
    Hello hello;
    EXPECT_TRUE(caller->receive(&hello, sizeof hello, soon()));
    Conversation talk = {digestOf(secret), hello.nonce, randomBytes()};
    Challenge challenge = {protocol, talk.host, {}};
    seal(challenge, talk);
    std::vector<uint8_t> bytes(bytesOf(challenge).begin(),
                               bytesOf(challenge).end());
    if (served % 2) // a damaged challenge, or a true one and then noise
      bytes[random() % bytes.size()] ^= uint8_t(1 << random() % 8);
    for (int i = 0; i < 300; ++i)
      bytes.push_back(uint8_t(random()));
    (void)caller->send(bytes.data(), bytes.size(), soon());
    ++served;
  }
  EXPECT_GT(served, 2);
  EXPECT_EQ(ends(patience), std::vector<int>{5});
  EXPECT_THAT(error(), HasSubstr("rank 1 could not connect to rank 0"));
}

} // namespace

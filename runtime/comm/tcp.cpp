// How the ranks of a TCP job meet. Each rank opens one connection per channel
// to rank 0, and one more for the watch (tcp_session.h). On each it sends a
// greeting and waits for the answer. When all have arrived, rank 0 sends the
// names of all hosts.
//
// Rank 0 cannot trust its callers: a port may be scanned, or used by another
// job. It hears each caller without blocking on it, checks protocol, job, size
// and rank, and answers with a verdict.
#include "runtime/comm/tcp.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/tcp_channel.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

constexpr char magic[8] = {'f', 's', 'd', 'p', 'c', '-', '0', '1'};
constexpr int watchLink = channels, links = channels + 1;

// The message that a rank sends on each connection to rank 0, and the answer.
// Sent as bytes: all ranks run the same executable on the same kind of machine.
struct Greeting {
  char protocol[8];
  int32_t rank, ranks, link;
  char host[64], job[96];
};
enum Verdict : int32_t { welcome, otherJob, otherSize, rankTaken, givenUp };
struct Answer {
  char protocol[8];
  int32_t verdict;
};
using Host = std::array<char, 64>;

Answer answer(Verdict verdict) {
  Answer answer;
  memcpy(answer.protocol, magic, sizeof magic);
  answer.verdict = verdict;
  return answer;
}

std::string meetingPlace(const LaunchEnvironment &environment) {
  return "'" + environment.address + "' port " +
         std::to_string(environment.port);
}

Greeting greetingOf(const LaunchEnvironment &environment, int link) {
  Greeting greeting = {};
  memcpy(greeting.protocol, magic, sizeof magic);
  greeting.rank = environment.rank;
  greeting.ranks = environment.ranks;
  greeting.link = link;
  gethostname(greeting.host, sizeof greeting.host - 1);
  environment.job.copy(greeting.job, sizeof greeting.job - 1);
  return greeting;
}

// The connections of one rank, by link and peer.
struct Star {
  std::vector<Socket> peers[links];
  std::vector<Host> hosts;
};

// Rank 0's side of the meeting.
class RankZero {
public:
  RankZero(const LaunchEnvironment &environment, Star &star)
      : environment(environment), star(star) {}

  // Returns once all ranks are connected.
  Status meet() {
    Result<Socket> listening = listenOn(environment.address, environment.port);
    if (!listening)
      return Error{"rank 0 cannot listen on " + meetingPlace(environment) +
                   " (" + listening.error().message +
                   "); set FSDPC_PORT to a free port, the same on every rank"};
    listener = std::move(*listening);
    Deadline deadline = inSeconds(environment.seconds);
    size_t wanted = size_t(environment.ranks - 1) * links;
    while (arrived < wanted) {
      if (std::chrono::steady_clock::now() >= deadline) {
        turnAway();
        return missing();
      }
      await(deadline);
    }
    for (int peer = 1; peer < environment.ranks; ++peer)
      start(peer, deadline);
    return {};
  }

private:
  // A connection that has not sent its greeting yet.
  struct Caller {
    Socket socket;
    Deadline deadline;
  };

  // Waits for new connections and for greetings. A caller that stays silent is
  // dropped after five seconds.
  void await(Deadline deadline) {
    std::vector<pollfd> entries = {{listener.descriptor(), POLLIN, 0}};
    for (const Caller &caller : callers) {
      entries.push_back({caller.socket.descriptor(), POLLIN, 0});
      deadline = std::min(deadline, caller.deadline);
    }
    poll(entries.data(), entries.size(), pollTimeout(deadline));
    auto now = std::chrono::steady_clock::now();
    std::vector<Caller> waiting;
    for (size_t i = 0; i < callers.size(); ++i)
      if (entries[i + 1].revents)
        admit(std::move(callers[i].socket));
      else if (now < callers[i].deadline)
        waiting.push_back(std::move(callers[i]));
    callers = std::move(waiting);
    for (Socket next = acceptFrom(listener); next.isOpen();
         next = acceptFrom(listener))
      callers.push_back({std::move(next), inSeconds(5)});
  }

  // Reads a greeting and answers it. Keeps the connection if it belongs here.
  void admit(Socket caller) {
    Greeting greeting;
    if (!caller.receive(&greeting, sizeof greeting, inSeconds(1)) ||
        memcmp(greeting.protocol, magic, sizeof magic) != 0)
      return;
    Verdict verdict = judge(greeting);
    Answer reply = answer(verdict);
    Status sent = caller.send(&reply, sizeof reply, inSeconds(1));
    if (verdict != welcome || !sent)
      return;
    memcpy(star.hosts[size_t(greeting.rank)].data(), greeting.host,
           sizeof greeting.host - 1);
    star.peers[greeting.link][size_t(greeting.rank)] = std::move(caller);
    ++arrived;
  }

  Verdict judge(const Greeting &greeting) const {
    Greeting own = greetingOf(environment, 0);
    if (memcmp(own.job, greeting.job, sizeof own.job) != 0)
      return otherJob;
    if (greeting.ranks != environment.ranks || greeting.rank < 1 ||
        greeting.rank >= environment.ranks || greeting.link < 0 ||
        greeting.link >= links)
      return otherSize;
    return star.peers[greeting.link][size_t(greeting.rank)].isOpen() ? rankTaken
                                                                     : welcome;
  }

  // Tells one rank that all are connected, with the names of all hosts. The
  // watch finds a rank that is gone by now.
  void start(int peer, Deadline deadline) {
    Socket &control = star.peers[controlChannel][size_t(peer)];
    Answer reply = answer(welcome);
    if (control.send(&reply, sizeof reply, deadline))
      (void)control.send(star.hosts.data(), star.hosts.size() * sizeof(Host),
                         deadline);
  }

  // Tells the ranks that did arrive that the job does not start.
  void turnAway() {
    Answer reply = answer(givenUp);
    for (Socket &peer : star.peers[controlChannel])
      if (peer.isOpen())
        (void)peer.send(&reply, sizeof reply, inSeconds(1));
  }

  // The error that names the ranks that did not arrive.
  Error missing() const {
    std::string names;
    int count = 0;
    for (int peer = 1; peer < environment.ranks; ++peer) {
      bool here = true;
      for (const std::vector<Socket> &link : star.peers)
        here &= link[size_t(peer)].isOpen();
      if (!here && ++count <= 8)
        names += (names.empty() ? "" : ", ") + std::to_string(peer);
    }
    if (count > 8)
      names += " and " + std::to_string(count - 8) + " more";
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%g", environment.seconds);
    return {
        std::string(count > 1 ? "ranks " : "rank ") + names + " of " +
        std::to_string(environment.ranks) + " (" + environment.launcher + ", " +
        environment.variables + ") did not connect to rank 0 at " +
        meetingPlace(environment) + " within " + seconds +
        " s; start all ranks and check that they can reach this port "
        "(FSDPC_PORT selects another, FSDPC_JOIN_SECONDS sets the timeout)"};
  }

  const LaunchEnvironment &environment;
  Star &star;
  Socket listener;
  std::vector<Caller> callers;
  size_t arrived = 0;
};

// The other ranks' side: connects to rank 0 and waits until all ranks are
// there.
class OtherRank {
public:
  OtherRank(const LaunchEnvironment &environment, Star &star)
      : environment(environment), star(star) {}

  // Returns once all ranks are connected. The error has no message if rank 0
  // has given up, and so has printed the reason itself.
  Status call() {
    // Rank 0 gives up first, because it knows which ranks are missing.
    Deadline deadline = inSeconds(environment.seconds + 5);
    for (int link = 0; link < links; ++link)
      FSDPC_TRY(connect(link, deadline));
    return awaitStart(deadline);
  }

private:
  // Opens one connection. Tries again, with growing pauses, until rank 0
  // answers.
  Status connect(int link, Deadline deadline) {
    auto pause = std::chrono::milliseconds(50);
    for (;;) {
      Result<Verdict> verdict = greet(link, deadline);
      if (verdict)
        return judge(*verdict);
      star.peers[link][0].close();
      if (std::chrono::steady_clock::now() + pause >= deadline)
        return unreachable(verdict.error());
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(1000));
    }
  }

  // Connects, greets and returns rank 0's verdict.
  Result<Verdict> greet(int link, Deadline deadline) {
    Result<Socket> connected =
        connectTo(environment.address, environment.port, deadline);
    FSDPC_TRY(connected);
    Socket &connection = star.peers[link][0];
    connection = std::move(*connected);
    Greeting greeting = greetingOf(environment, link);
    Answer reply = {};
    Deadline soon = std::min(deadline, inSeconds(10));
    if (!connection.send(&greeting, sizeof greeting, soon) ||
        !connection.receive(&reply, sizeof reply, soon) ||
        memcmp(reply.protocol, magic, sizeof magic) != 0)
      return Error{
          "the process that listens there is not rank 0 of an fsdpc program"};
    return Verdict(reply.verdict);
  }

  Status judge(Verdict verdict) const {
    if (verdict == welcome)
      return {};
    if (verdict == otherJob)
      return Error{"another job's rank 0 listens at " +
                   meetingPlace(environment) +
                   "; set FSDPC_PORT to a free port, the same on every rank"};
    return Error{
        "rank " + std::to_string(environment.rank) + " of " +
        std::to_string(environment.ranks) + " was refused by rank 0 at " +
        meetingPlace(environment) +
        (verdict == rankTaken ? ": another process has this rank already"
                              : ": its number of ranks is different") +
        "; check that " + environment.variables + " are set by this job"};
  }

  // Waits for rank 0's word that all ranks are there, and for their hosts.
  Status awaitStart(Deadline deadline) {
    Answer reply = {};
    Socket &control = star.peers[controlChannel][0];
    Status got = control.receive(&reply, sizeof reply, deadline);
    if (got && reply.verdict != welcome)
      return Error{};
    if (got)
      got = control.receive(star.hosts.data(), star.hosts.size() * sizeof(Host),
                            deadline);
    if (got)
      return {};
    return Error{"rank " + std::to_string(environment.rank) +
                 " lost rank 0 at " + meetingPlace(environment) +
                 " before all ranks had connected (" + got.error().message +
                 ")"};
  }

  Error unreachable(const Error &last) const {
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%g", environment.seconds);
    return {"rank " + std::to_string(environment.rank) +
            " could not connect to rank 0 at " + meetingPlace(environment) +
            " within " + seconds + " s (" + last.message +
            "); check that rank 0 is running and listens there (" +
            environment.launcher + ", " + environment.variables + ")"};
  }

  const LaunchEnvironment &environment;
  Star &star;
};

// Sets the rank's place on its machine: as the launcher says, or else by
// comparing host names.
void place(Job &job, const LaunchEnvironment &environment,
           const std::vector<std::string> &hosts, int ranksPerNode) {
  int before = 0, all = 0;
  for (int peer = 0; peer < job.size; ++peer)
    if (hosts[size_t(peer)] == hosts[size_t(job.rank)]) {
      before += peer < job.rank;
      ++all;
    }
  job.rankOnHost =
      environment.rankOnHost >= 0 ? environment.rankOnHost : before;
  job.ranksOnHost = environment.ranksOnHost > 0 ? environment.ranksOnHost : all;
  cutIntoNodes(job, ranksPerNode);
}

} // namespace

Result<std::unique_ptr<Job>> joinTcp(const LaunchEnvironment &environment,
                                     int ranksPerNode, double silence) {
  int ranks = environment.ranks;
  Star star;
  star.hosts.resize(size_t(ranks));
  for (std::vector<Socket> &link : star.peers)
    link.resize(environment.rank == 0 ? size_t(ranks) : 1);
  Greeting own = greetingOf(environment, 0);
  memcpy(star.hosts[size_t(environment.rank)].data(), own.host,
         sizeof own.host);
  Status met = environment.rank == 0 ? RankZero(environment, star).meet()
                                     : OtherRank(environment, star).call();
  // If every rank sees an error, one rank per node prints a line; on the node
  // of rank 0 that is rank 1.
  bool speaks = environment.rank <= 1 || environment.rankOnHost == 0;
  if (!met)
    return speaks ? met.error() : Error{};

  std::vector<std::string> hosts;
  for (const Host &host : star.hosts)
    hosts.push_back(host.data());
  auto job = std::make_unique<Job>();
  job->rank = environment.rank;
  job->size = ranks;
  job->launcher = environment.launcher;
  job->transport = "tcp";
  place(*job, environment, hosts, ranksPerNode);
  auto session = std::make_shared<TcpSession>(
      job->rank, job->rank == 1 || job->rankOnHost == 0, silence,
      std::move(hosts), std::move(star.peers[watchLink]));
  // A weak reference: the session must end with the job, not with the last copy
  // of this function.
  job->abort = [weak = std::weak_ptr<TcpSession>(session)](int code) {
    if (auto session = weak.lock())
      session->abort(code);
    fflush(nullptr);
    _exit(code);
  };
  setAbort(job->abort);
  for (int i = 0; i < channels; ++i)
    job->channel[i] = makeTcpChannel(job->rank, ranks, Channel(i),
                                     std::move(star.peers[i]), *session);
  job->session = std::move(session);
  return job;
}

} // namespace fsdpc::runtime

// Rank 0's side of the meeting: one loop over poll that accepts, challenges and
// admits. Anybody can call a port, so a caller is given five seconds from its
// connection to its greeting, and no other caller waits for it. What it sends
// is not looked at beyond a fixed number of bytes before its seal is right.
#include "runtime/comm/tcp_meeting.h"
#include "runtime/comm/secret.h"

#include <algorithm>
#include <cstdio>
#include <poll.h>

namespace fsdpc::runtime {

namespace {

constexpr double callerSeconds = 5;
// How long a rank whose connection broke may take to call again.
constexpr double returnSeconds = 10;

// A connection whose end is not known to be a rank yet.
struct Caller {
  Socket socket;
  Deadline deadline;
  Conversation conversation;
  bool challenged = false;
  size_t filled = 0;
  std::array<uint8_t, sizeof(Greeting)> bytes = {};

  // Bytes of the message that the caller is to send next.
  size_t wanted() const {
    return challenged ? sizeof(Greeting) : sizeof(Hello);
  }
  std::span<const uint8_t> message() const { return {bytes.data(), filled}; }
};

// The process that has a rank, and what binds a seal to its control connection.
struct Holder {
  Greeting greeting = {};
  Conversation control = {};
};

// Fills `star` with one connection per rank and link. Both references must
// outlive the meeting. It runs on one thread and is used once.
class Meeting {
public:
  Meeting(const LaunchEnvironment &environment, Star &star)
      : environment(environment), star(star), job(digestOf(environment.job)),
        holders(size_t(environment.ranks)) {}

  // Returns once every rank is connected, or with the error that rank 0 prints.
  // The key is made only after listening has succeeded: the process that has
  // the port owns the secret's file.
  Status hold() {
    Result<std::vector<Socket>> listening =
        listenOn(environment.address, environment.port);
    if (!listening)
      return Error{"rank 0 cannot listen on " + meetingPlace(environment) +
                   " (" + listening.error().message +
                   "); MASTER_ADDR must name rank 0's machine; set FSDPC_PORT "
                   "to a free port, the same on every rank"};
    listeners = std::move(*listening);
    FSDPC_TRY(secret.make(environment));
    deadline = inSeconds(environment.seconds);
    while (!isComplete()) {
      // Those that did connect are told, so that they end without a message of
      // their own.
      if (std::chrono::steady_clock::now() >= deadline) {
        for (int peer = 1; peer < environment.ranks; ++peer)
          start(peer, false, inSeconds(1));
        return missing();
      }
      FSDPC_TRY(await());
    }
    for (int peer = 1; peer < environment.ranks; ++peer)
      start(peer, true, deadline);
    return {};
  }

private:
  // Returns true if the rank has all its connections, those that have broken
  // but were not noticed yet included.
  bool isHere(int peer) const {
    return std::all_of(
        std::begin(star.peers), std::end(star.peers),
        [&](const auto &link) { return link[size_t(peer)].isOpen(); });
  }

  // Returns true if all ranks are connected. A connection that broke meanwhile
  // is dropped, and its rank may call again.
  bool isComplete() {
    for (int peer = 1; peer < environment.ranks; ++peer)
      if (!isHere(peer))
        return false;
    bool complete = true;
    for (std::vector<Socket> &link : star.peers)
      for (Socket &peer : link)
        if (peer.isOpen() && peer.isBroken()) {
          peer.close();
          complete = false;
          // If its process has ended nobody will call again, so the rest of
          // FSDPC_JOIN_SECONDS would be waited for in vain.
          deadline = std::min(deadline, inSeconds(returnSeconds));
        }
    return complete;
  }

  // Waits until somebody calls or speaks, or a caller's time is over.
  Status await() {
    std::vector<pollfd> entries;
    Deadline next = deadline;
    for (const Caller &caller : callers) {
      entries.push_back({caller.socket.descriptor(), POLLIN, 0});
      next = std::min(next, caller.deadline);
    }
    for (const Socket &listener : listeners)
      entries.push_back({listener.descriptor(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), pollTimeout(next)) < 0)
      return {}; // a signal
    auto now = std::chrono::steady_clock::now();
    std::vector<Caller> waiting;
    // Caller i is entry i. New callers are accepted only after this loop, so
    // the indices stay right.
    for (size_t i = 0; i < callers.size(); ++i)
      if (now < callers[i].deadline &&
          (!entries[i].revents || hear(callers[i])))
        waiting.push_back(std::move(callers[i]));
    callers = std::move(waiting);
    for (const Socket &listener : listeners)
      FSDPC_TRY(acceptAll(listener));
    return {};
  }

  // The oldest callers make room if there are more than any job has at once, or
  // no descriptors are left: ranks speak at once, and strangers may not.
  Status acceptAll(const Socket &listener) {
    for (;;) {
      Result<Socket> next = acceptFrom(listener);
      if (!next && callers.empty())
        return Error{"rank 0 cannot accept a connection (" +
                     next.error().message +
                     "); raise the limit of open files (ulimit -n)"};
      // Evicts the oldest one, either to make room or to free a descriptor for
      // the connection that could not be accepted; in that case it tries again.
      if (!next || callers.size() > size_t(environment.ranks) + 64)
        callers.erase(callers.begin());
      if (!next)
        continue;
      if (!next->isOpen())
        return {};
      Caller caller;
      caller.socket = std::move(*next);
      caller.deadline = inSeconds(callerSeconds);
      callers.push_back(std::move(caller));
    }
  }

  // Reads what there is. Returns false once the caller is admitted or turned
  // away.
  bool hear(Caller &caller) {
    Result<size_t> got = caller.socket.receiveSome(
        caller.bytes.data() + caller.filled, caller.wanted() - caller.filled);
    // A caller that hangs up at the challenge most likely knows another secret.
    // One that never said Hello may be a port scanner and does not count.
    if (!got) {
      strangers += caller.challenged;
      return false;
    }
    caller.filled += *got;
    if (caller.filled < caller.wanted())
      return true;
    if (!caller.challenged)
      return challenge(caller);
    admit(caller);
    return false;
  }

  // Answers a Hello with rank 0's own proof, and expects a Greeting next.
  // Returns false if the caller is to be dropped.
  bool challenge(Caller &caller) {
    std::optional<Hello> hello = parseHello(caller.message());
    if (!hello)
      return false;
    caller.conversation = {secret.key(), hello->nonce, randomBytes()};
    Challenge reply = {protocol, caller.conversation.rankZero, {}};
    seal(reply, caller.conversation);
    caller.challenged = true;
    caller.filled = 0;
    return bool(send(caller.socket, reply));
  }

  // Answers a greeting, and keeps the connection if it belongs here.
  void admit(Caller &caller) {
    std::optional<Greeting> greeting =
        parseGreeting(caller.message(), caller.conversation);
    if (!greeting) {
      ++strangers;
      return;
    }
    Answer reply = {judge(*greeting), 0, {}, {}};
    if (reply.verdict == Verdict::rankTaken) {
      const Greeting &holder = holders[size_t(greeting->rank)].greeting;
      reply.process = holder.process;
      reply.host = holder.host;
    }
    seal(reply, caller.conversation);
    if (!send(caller.socket, reply) || reply.verdict != Verdict::welcome)
      return;
    size_t rank = size_t(greeting->rank);
    Holder &holder = holders[rank];
    // A new process has the rank. Connections of the old one are broken, or
    // `judge` would have refused.
    if (holder.greeting.self != greeting->self)
      for (std::vector<Socket> &link : star.peers)
        link[rank].close(); // of a process that is gone
    holder.greeting = *greeting;
    // Start is sent on this connection, so its seal needs these nonces.
    if (greeting->link == controlChannel)
      holder.control = caller.conversation;
    star.hosts[rank] = greeting->host;
    star.peers[greeting->link][rank] = std::move(caller.socket);
  }

  // A process that calls again takes its own place. Another one takes it only
  // if no connection of the first is left.
  Verdict judge(const Greeting &greeting) const {
    if (greeting.job != job)
      return Verdict::otherJob;
    if (greeting.ranks != environment.ranks ||
        greeting.rank >= environment.ranks)
      return Verdict::otherSize;
    size_t rank = size_t(greeting.rank);
    if (holders[rank].greeting.self != greeting.self)
      for (const std::vector<Socket> &link : star.peers)
        if (link[rank].isOpen() && !link[rank].isBroken())
          return Verdict::rankTaken;
    return Verdict::welcome;
  }

  // Sends without waiting: the buffer of a new connection holds such a message.
  template <typename Message>
  Status send(Socket &socket, const Message &message) {
    return socket.send(&message, sizeof message,
                       std::chrono::steady_clock::now());
  }

  // Tells a rank that all are connected, with the names of all hosts, or that
  // the job does not start. The watch finds a rank that is gone by now.
  void start(int peer, bool starts, Deadline until) {
    Socket &control = star.peers[controlChannel][size_t(peer)];
    if (!control.isOpen())
      return;
    Start word = {starts, {}};
    seal(word, holders[size_t(peer)].control);
    // A failure is not reported here: the watch covers every rank from now on.
    if (control.send(&word, sizeof word, until) && starts)
      (void)control.send(star.hosts.data(),
                         star.hosts.size() * sizeof(HostName), until);
  }

  // The error that names the ranks that did not arrive.
  Error missing() const {
    std::string names;
    int count = 0;
    for (int peer = 1; peer < environment.ranks; ++peer)
      if (!isHere(peer) && ++count <= 8)
        names += (names.empty() ? "" : ", ") + std::to_string(peer);
    if (count > 8)
      names += " and " + std::to_string(count - 8) + " more";
    std::string notes;
    if (strangers)
      notes += "; connections turned away because they did not know the job's "
               "secret: " +
               std::to_string(strangers) +
               " (set the same FSDPC_SECRET on every rank)";
    if (std::all_of(listeners.begin(), listeners.end(), isLoopback))
      notes += "; only this machine can reach that address";
    return {
        std::string(count > 1 ? "ranks " : "rank ") + names + " of " +
        std::to_string(environment.ranks) + " (" + environment.launcher + ", " +
        environment.variables + ") did not connect to rank 0 at " +
        meetingPlace(environment) + " within " +
        secondsText(environment.seconds) +
        " s; start all ranks and check that they can reach this port "
        "(FSDPC_PORT selects another, FSDPC_JOIN_SECONDS sets the timeout)" +
        notes};
  }

  const LaunchEnvironment &environment;
  Star &star;
  const Bytes32 job;
  JobKey secret;
  Deadline deadline;
  std::vector<Socket> listeners;
  std::vector<Caller> callers;
  std::vector<Holder> holders; // by rank
  int strangers = 0;           // who did not know the key
};

} // namespace

std::string meetingPlace(const LaunchEnvironment &environment) {
  return "'" + environment.address + "' port " +
         std::to_string(environment.port);
}

std::string secondsText(double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%g", seconds);
  return text;
}

Status holdMeeting(const LaunchEnvironment &environment, Star &star) {
  return Meeting(environment, star).hold();
}

} // namespace fsdpc::runtime

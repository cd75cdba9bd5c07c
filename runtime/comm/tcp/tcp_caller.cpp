// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The other ranks' side of the meeting: call rank 0 until it answers, prove to
// know the job's key, and wait until all ranks are there. The process that
// listens may be anybody, so it proves itself first and learns nothing before.
#include "runtime/comm/tcp/secret.h"
#include "runtime/comm/tcp/tcp_meeting.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <thread>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

template <typename Message>
std::span<const uint8_t> bytesOf(const Message &message) {
  return {reinterpret_cast<const uint8_t *>(&message), sizeof message};
}

// Rank 0 leaves the secret as soon as it listens. If it is not there so many
// seconds after somebody listens, it is elsewhere.
constexpr double secretSeconds = 5;

// One rank's call to rank 0, which recognises a second call by the process's
// `self` and not by an address.
class OtherRank {
public:
  OtherRank(const LaunchEnvironment &environment, Mesh &mesh)
      : environment(environment), mesh(mesh) {}

  Status call() {
    // Rank 0 gives up first, because it knows which ranks are missing.
    Deadline deadline = inSeconds(environment.seconds + 5);
    FSDPC_TRY(connect(deadline));
    return awaitStart(deadline);
  }

private:
  // Opens the connection. Tries again, with growing pauses, until rank 0
  // answers. Any failure before the answer is worth another try: rank 0 may not
  // be up yet, or a process of another job may still hold the port.
  Status connect(Deadline deadline) {
    auto pause = std::chrono::milliseconds(50);
    for (;;) {
      Result<Answer> answer = greet(deadline);
      if (answer)
        return judge(*answer);
      mesh.watch[0].close();
      if (isOwn(answer.error()))
        return answer.error().reworded(
            concat("rank ", environment.rank, " cannot call rank 0 at ",
                   meetingPlace(environment), " (", answer.error().message,
                   "); raise the limit of open files (ulimit -n)"));
      auto now = std::chrono::steady_clock::now();
      // Somebody listens, but the key is not in the folder: waiting longer will
      // not make it appear.
      if (now >= withoutSecret)
        return quiet(answer.error().reworded(
            concat("rank ", environment.rank, " cannot join rank 0 at ",
                   meetingPlace(environment), ": ", answer.error().message)));
      if (now + pause >= deadline)
        return unreachable(answer.error());
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(1000));
    }
  }

  // Returns true if this process lacks descriptors or memory, which no other
  // try mends.
  static bool isOwn(const Error &error) {
    return error.code() == ExitCode::runFailed;
  }

  // With an interface, rank 0 listens there, whatever its name means on its own
  // machine.
  Result<Socket> reach(Deadline deadline) const {
    if (mesh.own.empty() || !isLoopback(environment.address))
      return connectTo(environment.address, environment.port, deadline,
                       mesh.silence, mesh.own);
    Endpoint place = mesh.own.front();
    place.port = environment.port;
    return connectTo(place, deadline, mesh.silence, mesh.own);
  }

  // Connects, greets and returns rank 0's answer.
  Result<Answer> greet(Deadline deadline) {
    // Read for each try: a job that was killed may have left a file, which rank
    // 0 replaces.
    Result<Bytes32> key = findJobKey(environment);
    Result<Socket> connected = reach(deadline);
    // What a listener did before says more than that there is none now.
    if (!connected)
      return isOwn(connected.error()) ? connected.error()
                                      : stranger.value_or(connected.error());
    if (!key) {
      withoutSecret = std::min(withoutSecret, inSeconds(secretSeconds));
      return key.error();
    }
    // The key has appeared, so that limit no longer applies.
    withoutSecret = never;
    Socket &connection = mesh.watch[0];
    connection = std::move(*connected);
    FSDPC_TRY(listenBeside(connection));
    // A stranger may listen there, accept, and then say nothing.
    Deadline soon = std::min(deadline, inSeconds(10));
    conversation = {*key, {}, {}};
    // Set before the exchange and cleared after it: if the connection breaks in
    // between, the next attempt can still say what was wrong.
    stranger =
        machineError("the process that listens there is not rank 0 of an "
                     "fsdpc program, or knows another secret");
    Result<Answer> answer = introduce(
        connection, greetingFor(environment, 0, watchLink, mesh.self, listener),
        conversation, soon);
    if (!answer)
      return answer.error().message.empty() ? *stranger : answer.error();
    stranger.reset();
    mesh.key = *key;
    return answer;
  }

  // Listens for the other ranks, only on the interface that leads to rank 0.
  Status listenBeside(const Socket &connection) {
    if (!mesh.listeners.empty())
      return {};
    Result<Endpoint> own = connection.ownEndpoint();
    FSDPC_TRY(own);
    own->port = 0;
    Result<Socket> made = listenOn(*own);
    FSDPC_TRY(made);
    Result<Endpoint> chosen = made->ownEndpoint();
    FSDPC_TRY(chosen);
    listener = *chosen;
    mesh.listeners.push_back(std::move(*made));
    return {};
  }

  // A rank that is refused prints why itself, since the others may be fine.
  Status judge(const Answer &answer) const {
    if (answer.verdict == Verdict::welcome)
      return {};
    if (answer.verdict == Verdict::otherJob)
      return machineError(
          "another job's rank 0 listens at " + meetingPlace(environment) +
          "; set FSDPC_PORT to a free port, the same on every rank");
    std::string reason = "its number of ranks is different";
    if (answer.verdict == Verdict::rankTaken)
      reason =
          concat("process ", answer.process, " on node '", textOf(answer.host),
                 "' has this rank already, and process ", getpid(),
                 " on node '", textOf(ownHostName()), "' called for it too");
    return inputError(concat(
        "rank ", environment.rank, " of ", environment.ranks,
        " was refused by rank 0 at ", meetingPlace(environment), ": ", reason,
        "; check that ", environment.variables, " are set by this job"));
  }

  // Waits for rank 0's word that all ranks are there, and for their hosts.
  Status awaitStart(Deadline deadline) {
    Start word;
    Socket &connection = mesh.watch[0];
    Status got = connection.receive(&word, sizeof word, deadline);
    std::optional<Start> start;
    if (got)
      start = parseStart(bytesOf(word), conversation);
    if (got && !start)
      got = machineError("it does not know the job's secret any more");
    // Rank 0 has printed why, so the error has no message.
    if (got && !start->starts)
      return machineError("");
    std::span<const uint8_t> members = runtime::bytesOf(mesh.members);
    if (got)
      got = connection.receive(mesh.members.data(), members.size(), deadline);
    if (got && !areEqual(start->members, digestOf(members)))
      got = machineError("its list of the ranks is damaged");
    if (got) {
      mesh.members[0].listener = start->listener;
      return {};
    }
    return quiet(machineError(
        concat("rank ", environment.rank, " lost rank 0 at ",
               meetingPlace(environment), " before all ranks had connected (",
               got.error().message, ")")));
  }

  Error unreachable(const Error &last) const {
    return quiet(last.reworded(
        concat("rank ", environment.rank, " could not connect to rank 0 at ",
               meetingPlace(environment), " within ",
               secondsText(environment.seconds), " s (", last.message,
               "); check that rank 0 is running and listens there (",
               environment.launcher, ", ", environment.variables, ")")));
  }

  // Several ranks see the same error, and one per node prints it; on the node
  // of rank 0 that is rank 1.
  Error quiet(const Error &error) const {
    return environment.rank == 1 || environment.rankOnHost == 0
               ? error
               : error.reworded("");
  }

  const LaunchEnvironment &environment;
  Mesh &mesh;
  Conversation conversation = {};
  Endpoint listener;              // this rank's
  std::optional<Error> stranger;  // about the last listener that failed
  Deadline withoutSecret = never; // when to give up for lack of a secret
};

} // namespace

Greeting greetingFor(const LaunchEnvironment &environment, int to, int link,
                     const Bytes32 &self, const Endpoint &listener) {
  return {environment.rank,
          environment.ranks,
          link,
          int32_t(getpid()),
          to,
          0,
          listener,
          0,
          self,
          {},
          digestOf(environment.job),
          ownHostName(),
          {}};
}

// Only when the listener has proved to know the key does it learn anything of
// this rank. An error without a message means that it did not.
Result<Answer> introduce(Socket &connection, Greeting greeting,
                         Conversation &conversation, Deadline deadline) {
  conversation.caller = randomBytes();
  Hello hello = {protocol, conversation.caller};
  Challenge challenge;
  if (!connection.send(&hello, sizeof hello, deadline) ||
      !connection.receive(&challenge, sizeof challenge, deadline) ||
      !parseChallenge(bytesOf(challenge), conversation))
    return machineError("");
  seal(greeting, conversation);
  Answer reply;
  if (!connection.send(&greeting, sizeof greeting, deadline) ||
      !connection.receive(&reply, sizeof reply, deadline))
    return machineError(
        concat("rank ", greeting.to, " broke the connection off"));
  std::optional<Answer> answer = parseAnswer(bytesOf(reply), conversation);
  if (!answer)
    return machineError("");
  return *answer;
}

Status joinMeeting(const LaunchEnvironment &environment, Mesh &mesh) {
  return OtherRank(environment, mesh).call();
}

} // namespace fsdpc::runtime

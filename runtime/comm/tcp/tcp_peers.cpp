// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Connections between ranks other than rank 0. Each rank calls those below it,
// in order, and then receives those above. Rank 1 calls nobody and so receives
// at once, then rank 2 can, and so on: no two ranks wait for each other.
#include "runtime/comm/failure.h"
#include "runtime/comm/tcp/tcp_reception.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <thread>

namespace fsdpc::runtime {

namespace {

// All ranks are here already, so they need no longer than the system takes to
// find that a machine does not answer.
constexpr double peerSeconds = 60;

// The end of an error on either side, which says what to do.
const char *const remedy =
    "; the ranks of a job connect to each other on ports that the system "
    "chooses: allow them between these machines, or use mpirun";

// Opens one connection. A listener stands before rank 0 names it, so failures
// are rare, but a connection may break.
Status call(const LaunchEnvironment &environment, Mesh &mesh, int to, int link,
            Deadline deadline) {
  const Endpoint &place = mesh.members[size_t(to)].listener;
  Socket &connection = mesh.peers[link][size_t(to)];
  for (auto pause = std::chrono::milliseconds(50);; pause *= 2) {
    Result<Socket> made = connectTo(place, deadline, mesh.silence, mesh.own);
    Error why =
        made ? machineError("another process listens there") : made.error();
    if (made) {
      connection = std::move(*made);
      Conversation conversation = {mesh.key, {}, {}};
      // Until the peer has called its own lower ranks it does not answer.
      Result<Answer> answer = introduce(
          connection, greetingFor(environment, to, link, mesh.self, {}),
          conversation, deadline);
      if (answer && answer->verdict == Verdict::welcome)
        return {};
      if (!answer && !answer.error().message.empty())
        why = answer.error();
      connection.close();
    }
    // No other try mends a lack of descriptors or memory.
    if (why.code() == ExitCode::runFailed ||
        std::chrono::steady_clock::now() + pause >= deadline)
      return why;
    std::this_thread::sleep_for(pause);
  }
}

} // namespace

void connectPeers(const LaunchEnvironment &environment, Mesh &mesh) {
  double seconds = std::min(environment.seconds, peerSeconds);
  Deadline deadline = inSeconds(seconds);
  std::string own = concat("rank ", environment.rank);
  for (int to = 1; to < environment.rank; ++to)
    for (int link = 0; link < channels; ++link)
      if (Status called = call(environment, mesh, to, link, deadline); !called)
        fail(machineError(concat(own, " could not connect to rank ", to, " at ",
                                 textOf(mesh.members[size_t(to)].listener),
                                 " within ", secondsText(seconds), " s (",
                                 called.error().message, ")", remedy)));
  if (environment.rank == 0)
    return;
  // The caller gives up first, because it knows why it could not connect.
  Reception reception(environment, mesh, mesh.listeners, mesh.key);
  if (Status served = reception.serve(deadline + std::chrono::seconds(5));
      !served)
    fail(served.error());
  if (std::string missing = reception.missing(); !missing.empty())
    fail(machineError(missing + " did not connect to " + own + " at " +
                      textOf(mesh.members[size_t(environment.rank)].listener) +
                      " within " + secondsText(seconds + 5) + " s" + remedy));
}

} // namespace fsdpc::runtime

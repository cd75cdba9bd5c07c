// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One thread receives calls and never waits for anybody. The other one calls,
// which takes as long as a machine does not answer. Until a connection breaks
// both sleep in poll().
#include "runtime/comm/tcp/tcp_mender.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/thread.h"
#include "runtime/support/diagnostics.h"

#include <algorithm>
#include <cstdio>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

// In seconds: between two tries; to connect, and to converse; how long the port
// of a process refuses calls until it counts as gone; and how long the lower
// rank waits before it asks to be called.
constexpr double pause = 0.25, toConnect = 2, toConverse = 3, toBeGone = 1,
                 toAsk = 0.5;
// As long as Linux tries by itself.
constexpr double systemLimit = 15 * 60;

// A relay had taken them, and nobody has them any more.
const char *const bytesAreGone =
    "its connection broke, and bytes that were on their way are gone";

int makeEvent() {
  int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0)
    fail(runError("no descriptor is left for an event; raise the limit of open "
                  "files (ulimit -n)"));
  return event;
}

void clear(int event) {
  uint64_t count;
  (void)!read(event, &count, sizeof count);
}

double secondsSince(Deadline begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

} // namespace

Links::Links(int ranks) : ranks(ranks), broken(makeEvent()) {
  for (int link = 0; link < runtime::links; ++link) {
    mended[size_t(link)] = makeEvent();
    for (int peer = 0; peer < ranks; ++peer)
      all[link].push_back(std::make_unique<Link>());
  }
}

Links::~Links() {
  close(broken);
  for (int event : mended)
    close(event);
}

void Links::open(int link, std::vector<Socket> sockets) {
  for (int peer = 0; peer < ranks; ++peer)
    if (sockets[size_t(peer)].isOpen())
      at(link, peer)
          .open(std::move(sockets[size_t(peer)]), broken, mended[size_t(link)]);
}

template <typename Body> void Mender::forEach(const Body &body) {
  for (int peer = 0; peer < all.ranks; ++peer)
    for (int link = 0; link < links; ++link)
      body(link, peer, all.at(link, peer));
}

Mender::Mender(const LaunchEnvironment &environment, const Mesh &mesh,
               Links &all, Lost lost)
    : environment(environment), mesh(mesh), all(all), lost(std::move(lost)),
      limit(mesh.silence > 0 ? mesh.silence : systemLimit),
      callers(environment.rank, environment.ranks, mesh.silence, mesh.listeners,
              mesh.key),
      job(digestOf(environment.job)), refused(size_t(environment.ranks), never),
      reported(refused), ending(makeEvent()) {
  receiver = startThread("calls of other ranks", [this] { receive(); });
  caller = startThread("broken connections", [this] { mend(); });
}

Mender::~Mender() {
  ends = true;
  uint64_t one = 1;
  (void)!write(ending, &one, sizeof one);
  (void)!write(all.broken, &one, sizeof one);
  receiver.join();
  caller.join();
  close(ending);
}

// Failures to accept pass: callers try again, and a rank that cannot be reached
// for too long is lost.
void Mender::receive() {
  while (!ends)
    if (!callers.await(never, ending, [this](Guest &&guest) { admit(guest); }))
      std::this_thread::sleep_for(std::chrono::duration<double>(pause));
}

// Exchanges the connection if a higher rank calls, or gives it up if a lower
// one asks to be called.
void Mender::admit(Guest &guest) {
  const Greeting &greeting = guest.greeting;
  int self = environment.rank, peer = greeting.rank;
  bool isOurs = greeting.job == job && greeting.ranks == environment.ranks &&
                peer < environment.ranks && greeting.to == self &&
                greeting.connections > 0;
  // A caller that has given up has called again since, and what it said here
  // may be older.
  if (!isOurs || guest.socket.isBroken())
    return;
  Link &link = all.at(greeting.link, peer);
  if (!link.isUsed())
    return;
  Answer reply = {Verdict::welcome, 0, 0, {}, {}};
  if (greeting.called != mesh.self ||
      greeting.self != mesh.members[size_t(peer)].self)
    reply.verdict = Verdict::otherProcess;
  bool exchanges = reply.verdict == Verdict::welcome && peer > self;
  if (exchanges)
    reply.received = link.breakOff("the other end had lost it");
  seal(reply, guest.conversation);
  if (!sendAtOnce(guest.socket, reply) || reply.verdict != Verdict::welcome)
    return;
  if (!exchanges) {
    // It has been mended meanwhile if it has had more connections.
    if (link.state().connections <= greeting.connections)
      link.breakOff("the other end had lost it");
  } else if (!link.adopt(std::move(guest.socket), greeting.received)) {
    lost(greeting.link, peer, bytesAreGone);
  }
}

void Mender::mend() {
  while (!ends) {
    double next = mendAll();
    if (ends)
      return;
    std::vector<pollfd> entries;
    std::vector<std::pair<Link *, int>> watched; // with their connections
    forEach([&](int, int, Link &link) {
      Link::State state = link.state();
      int file = link.descriptor();
      if (file < 0)
        return;
      entries.push_back(
          {file, short(POLLRDHUP | (state.mustPush ? POLLOUT : 0)), 0});
      watched.emplace_back(&link, state.connections);
    });
    entries.push_back({all.broken, POLLIN, 0});
    poll(entries.data(), entries.size(),
         next > 0 ? pollTimeout(inSeconds(next)) : -1);
    clear(all.broken);
    for (size_t i = 0; i < watched.size(); ++i) {
      auto [link, connections] = watched[i];
      if ((entries[i].revents & (POLLERR | POLLHUP | POLLRDHUP)) &&
          link->state().connections == connections)
        link->breakOff("connection closed");
    }
  }
}

// Tries once to mend each link. Returns the seconds until the next try, 0 if
// all are whole.
double Mender::mendAll() {
  double next = 0;
  int silent = -1; // a rank that did not answer: other links would wait as long
  forEach([&](int number, int peer, Link &link) {
    Link::State state = link.state();
    if (state.mustPush)
      link.push();
    if (!state.broken || ends)
      return;
    next = pause;
    double since = secondsSince(state.since);
    if (since > limit) {
      char text[64];
      snprintf(text, sizeof text, "; not made again within %g s", limit);
      lost(number, peer, state.why + text);
    }
    bool calls = peer < environment.rank;
    if (peer != silent && (calls || since >= toAsk) &&
        !call(number, peer, state))
      silent = peer;
  });
  return next;
}

// Calls a lower rank, or asks a higher one to call. Returns false if it did not
// answer.
bool Mender::call(int link, int peer, const Link::State &state) {
  const Member &member = mesh.members[size_t(peer)];
  if (member.listener.family == 0) { // it has found no port to listen on
    lost(link, peer, state.why);
    return false;
  }
  Deadline &firstRefusal = refused[size_t(peer)];
  Result<Socket> made =
      connectTo(member.listener, inSeconds(toConnect), mesh.silence, mesh.own);
  if (!made) {
    if (!isRefusal(made.error())) {
      firstRefusal = never;
      return false;
    }
    firstRefusal = std::min(firstRefusal, std::chrono::steady_clock::now());
    if (secondsSince(firstRefusal) >= toBeGone)
      lost(link, peer, state.why);
    return false;
  }
  firstRefusal = never;
  Link &mended = all.at(link, peer);
  Greeting greeting =
      greetingFor(environment, peer, link, mesh.self,
                  mesh.members[size_t(environment.rank)].listener);
  greeting.connections = state.connections;
  greeting.received = mended.breakOff(state.why);
  greeting.called = member.self;
  Conversation conversation = {mesh.key, {}, {}};
  Result<Answer> answer =
      introduce(*made, greeting, conversation, inSeconds(toConverse));
  if (!answer)
    return false;
  if (answer->verdict == Verdict::otherProcess)
    lost(link, peer, "another process has its place");
  if (answer->verdict != Verdict::welcome || peer > environment.rank)
    return true;
  if (mended.adopt(std::move(*made), answer->received))
    report(peer, state);
  else
    lost(link, peer, bytesAreGone);
  return true;
}

// Links to one peer mostly break together, and again and again.
void Mender::report(int peer, const Link::State &state) {
  auto now = std::chrono::steady_clock::now();
  Deadline &last = reported[size_t(peer)];
  if (last != never && now - last < std::chrono::minutes(1))
    return;
  last = now;
  char seconds[32];
  snprintf(seconds, sizeof seconds, "%.1f", secondsSince(state.since));
  printWarning("rank " + std::to_string(environment.rank) +
               " has made its connection to rank " + std::to_string(peer) +
               " on node '" + textOf(mesh.members[size_t(peer)].host) +
               "' again after " + seconds + " s (" + state.why + ")");
}

} // namespace fsdpc::runtime

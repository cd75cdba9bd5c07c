// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One thread receives calls, and one calls. Neither waits for any one rank, so
// a machine that is gone delays no other link. While all connections that are
// wanted stand both sleep in poll().
#include "runtime/comm/tcp/tcp_mender.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/thread.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"

#include <algorithm>
#include <cstdio>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

// In seconds: at least so long from one call to the next; at most so long for
// a call; how long the port of a process refuses calls until it counts as gone;
// and how long the lower rank waits before it asks to be called.
constexpr double pause = 0.25, toCall = 5, toBeGone = 1, toAsk = 0.5;
// As long as Linux tries by itself.
constexpr double systemLimit = 15 * 60;
// A first connection gets at least as long as the system takes to find that a
// machine does not answer, however small the watch's limit is. The rank that
// calls gives up first, because it knows why it could not connect.
constexpr double toConnect = 60, toBeCalled = 5;

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

Deadline after(Deadline begin, double seconds) {
  return begin + std::chrono::milliseconds(int64_t(seconds * 1000));
}

double secondsSince(Deadline begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

} // namespace

Links::Links(int ranks) : ranks(ranks), broken(makeEvent()) {
  for (int link = 0; link < links; ++link) {
    mended[size_t(link)] = makeEvent();
    all[link] = std::vector<std::atomic<Link *>>(size_t(ranks));
  }
}

Links::~Links() {
  close(broken);
  for (int event : mended)
    close(event);
}

Link &Links::at(int number, int peer) {
  std::atomic<Link *> &place = all[number][size_t(peer)];
  if (Link *link = place.load(std::memory_order_acquire))
    return *link;
  std::lock_guard<std::mutex> lock(mutex);
  if (!place.load(std::memory_order_relaxed))
    place.store(
        &made.emplace_back(number, peer, broken, mended[size_t(number)]).link,
        std::memory_order_release);
  return *place.load(std::memory_order_relaxed);
}

// It may leave out links that are made meanwhile. A link's first use signals
// the mender.
template <typename Body> void Links::forEach(const Body &body) {
  std::vector<Made *> those;
  {
    std::lock_guard<std::mutex> lock(mutex);
    for (Made &each : made)
      those.push_back(&each);
  }
  for (Made *each : those)
    body(each->number, each->peer, each->link);
}

Mender::Mender(const LaunchEnvironment &environment, const Mesh &mesh,
               Links &all, Lost lost)
    : environment(environment), mesh(mesh), all(all), lost(std::move(lost)),
      limit(mesh.silence > 0 ? mesh.silence : systemLimit),
      callers(environment.rank, environment.ranks, mesh.silence, mesh.listeners,
              mesh.key),
      job(digestOf(environment.job)),
      calls(mesh.key, toCall, mesh.silence, mesh.own,
            [this](Call &call, const Calls::End &end) { hear(call, end); }),
      refused(size_t(environment.ranks), never), reported(refused),
      ending(makeEvent()) {
  for (std::vector<Deadline> &link : due)
    link.resize(size_t(all.ranks));
  receiver = startThread("calls of other ranks", [this] { receive(); });
  caller = startThread("calls to other ranks", [this] { mend(); });
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

// Failures to accept may pass: callers try again, and a rank that cannot be
// reached for too long is lost. Only this rank knows why.
void Mender::receive() {
  for (bool warned = false; !ends;) {
    Status heard =
        callers.await(never, ending, [this](Guest &&guest) { admit(guest); });
    if (heard)
      continue;
    if (!warned)
      printWarning(heard.error().message);
    warned = true;
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  }
}

// Takes the connection of a higher rank that calls. A lower one asks for a
// call: for the first one, or for another one, so the one that stands is given
// up.
void Mender::admit(Guest &guest) {
  const Greeting &greeting = guest.greeting;
  int self = environment.rank, peer = greeting.rank;
  bool isOurs = greeting.job == job && greeting.ranks == environment.ranks &&
                peer < environment.ranks && peer != self && greeting.to == self;
  if (!isOurs)
    return;
  Link &link = all.at(greeting.link, peer);
  bool exchanges = peer > self;
  int number = link.state().number;
  // A call that is older than the connection may arrive late: its caller has
  // given up, and has more by now than it said. The watch's connections were
  // made when the ranks met.
  if ((exchanges && greeting.connection <= number) ||
      (greeting.link == watchLink && number == 0))
    return;
  Answer reply = {Verdict::welcome, 0, 0, {}, {}};
  if (greeting.called != mesh.self ||
      greeting.self != mesh.members[size_t(peer)].self)
    reply.verdict = Verdict::otherProcess;
  if (exchanges && reply.verdict == Verdict::welcome)
    reply.received = link.breakOff("the other end had lost it");
  seal(reply, guest.conversation);
  if (!sendAtOnce(guest.socket, reply) || reply.verdict != Verdict::welcome)
    return;
  if (!exchanges && greeting.connection == 0)
    link.want();
  else if (!exchanges)
    link.breakOff("the other end had lost it", greeting.connection);
  else if (!link.adopt(std::move(guest.socket), Link::Side::host,
                       greeting.connection, greeting.received))
    loseNow(greeting.link, peer, number, bytesAreGone);
}

void Mender::mend() {
  while (!ends) {
    Deadline next = std::min(callAll(), calls.next());
    std::vector<pollfd> entries;
    std::vector<std::pair<Link *, int>> watched; // with their numbers
    all.forEach([&](int, int, Link &link) {
      Link::State state = link.state();
      int file = link.descriptor();
      if (file < 0)
        return;
      entries.push_back(
          {file, short(POLLRDHUP | (state.mustPush ? POLLOUT : 0)), 0});
      watched.emplace_back(&link, state.number);
    });
    calls.addTo(entries);
    entries.push_back({all.broken, POLLIN, 0});
    if (poll(entries.data(), entries.size(), pollTimeout(next)) < 0)
      continue; // a signal
    clear(all.broken);
    for (size_t i = 0; i < watched.size(); ++i)
      if (entries[i].revents & (POLLERR | POLLHUP | POLLRDHUP))
        watched[i].first->breakOff("connection closed", watched[i].second);
    calls.advance(std::span(entries).subspan(watched.size()));
  }
}

// Begins the calls that are due, and sends what is kept. Returns when the next
// call is due.
Deadline Mender::callAll() {
  Deadline next = never;
  all.forEach([&](int number, int peer, Link &link) {
    Link::State state = link.state();
    if (state.mustPush)
      link.push();
    if (!state.broken)
      return;
    auto now = std::chrono::steady_clock::now();
    double since = secondsSince(state.since);
    if (double most = limitOf(peer, state); since > most)
      giveUp(number, peer, state, concat(" within ", secondsText(most), " s"));
    if (calls.isCalling(number, peer))
      return;
    Deadline &at = due[size_t(number)][size_t(peer)];
    if (peer > environment.rank)
      at = std::max(at, after(state.since, toAsk));
    if (now >= at) {
      at = after(now, pause);
      call(number, peer, state);
    }
    next = std::min(next, at);
  });
  return next;
}

double Mender::limitOf(int peer, const Link::State &state) const {
  if (state.number > 0)
    return limit;
  // It may be wanted hours after the start, so a pause of the network is as
  // harmless then as to one that stands.
  double most = std::max(std::min(environment.seconds, toConnect), limit);
  return peer > environment.rank ? most + toBeCalled : most;
}

// How a message about a link begins that never had a connection.
std::string Mender::notConnected(int peer) const {
  return concat("rank ", environment.rank, " could not connect to rank ", peer,
                " at ", textOf(mesh.members[size_t(peer)].listener));
}

// For reasons that time does not mend. On both threads.
void Mender::loseNow(int link, int peer, int number, const std::string &why) {
  lost(link, peer,
       number > 0 ? why : concat(notConnected(peer), " (", why, ")"));
}

void Mender::giveUp(int link, int peer, const Link::State &state,
                    const std::string &more) {
  if (state.number > 0) {
    lost(link, peer,
         state.why + (more.empty() ? "" : "; not made again" + more));
    return;
  }
  const Failure &last = failures[{link, peer}];
  lost(link, peer,
       concat(notConnected(peer), more, " (",
              last.why.empty() ? "no answer" : last.why, "); ",
              last.lacksDescriptors
                  ? "raise the limit of open files (ulimit -n)"
                  : "the ranks of a job connect to each other on ports that "
                    "the system chooses: allow them between these machines, or "
                    "use mpirun"));
}

// Calls a lower rank, or asks a higher one to call.
void Mender::call(int link, int peer, const Link::State &state) {
  const Member &member = mesh.members[size_t(peer)];
  if (member.listener.family == 0) { // it has found no port to listen on
    failures[{link, peer}] = {"it has no port to listen on", false};
    giveUp(link, peer, state, "");
    return;
  }
  Link &broken = all.at(link, peer);
  Greeting greeting =
      greetingFor(environment, peer, link, mesh.self,
                  mesh.members[size_t(environment.rank)].listener);
  greeting.connection =
      peer < environment.rank ? broken.nextNumber() : state.number;
  // The other thread may have adopted a newer connection meanwhile.
  greeting.received = broken.breakOff(state.why, state.number);
  greeting.called = member.self;
  calls.begin(greeting, member.listener);
}

void Mender::hear(Call &call, const Calls::End &end) {
  int link = call.greeting.link, peer = call.greeting.to;
  Link &broken = all.at(link, peer);
  Link::State state = broken.state();
  Deadline &firstRefusal = refused[size_t(peer)];
  failures[{link, peer}] = {end.why, end.lacksDescriptors};
  // A first connection would need a descriptor more for good.
  if (end.lacksDescriptors && state.number == 0)
    giveUp(link, peer, state, "");
  if (end.isRefused) {
    // Refusals of an earlier time without a connection say nothing of this one.
    if (firstRefusal < state.since)
      firstRefusal = never;
    firstRefusal = std::min(firstRefusal, std::chrono::steady_clock::now());
    if (secondsSince(firstRefusal) >= toBeGone)
      giveUp(link, peer, state, "");
    return;
  }
  firstRefusal = never;
  if (!end.answer)
    return;
  if (end.answer->verdict == Verdict::otherProcess)
    loseNow(link, peer, state.number, "another process has its place");
  if (end.answer->verdict != Verdict::welcome || peer > environment.rank)
    return;
  if (broken.adopt(std::move(call.socket), Link::Side::caller,
                   call.greeting.connection, end.answer->received)) {
    due[size_t(link)][size_t(peer)] = {};
    if (state.number > 0)
      report(peer, state);
  } else {
    loseNow(link, peer, state.number, bytesAreGone);
  }
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
  printWarning(concat("rank ", environment.rank,
                      " has made its connection to rank ", peer, " on node '",
                      textOf(mesh.members[size_t(peer)].host), "' again after ",
                      seconds, " s (", state.why, ")"));
}

} // namespace fsdpc::runtime

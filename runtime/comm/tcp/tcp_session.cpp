// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The watch over a TCP job. Each message is one byte (wire.h): a rank is here
// (every few seconds), it leaves, or it ends the job with an exit code. Rank 0
// passes an end on to the others, and leaves last, because the others only hear
// of each other through it. It waits until they have its last word: if their
// connections broke first, they would find it gone and call it lost.
#include "runtime/comm/tcp/tcp_session.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/thread.h"
#include "runtime/comm/wire.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <cstdio>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

constexpr double beat = 5; // at most so many seconds between two signs of life
constexpr int secondsToSayWhy = 2;

// Without destructors and exit handlers: other threads of the process still run
// and use what those would destroy.
[[noreturn]] void end(int code) {
  fflush(nullptr);
  _exit(code);
}

} // namespace

TcpSession::TcpSession(int rank, bool speaks, double silence,
                       std::vector<std::string> hosts, Links &all)
    : self(rank), speaks(speaks), silence(silence), hosts(std::move(hosts)),
      all(all), heard(size_t(all.ranks), std::chrono::steady_clock::now()),
      left(size_t(all.ranks)), wake(eventfd(0, EFD_CLOEXEC)) {
  for (int peer = 0; peer < all.ranks; ++peer)
    if (peer != self && (self == 0 || peer == 0))
      peers.push_back(peer);
  watcher = startThread("the watch of connections", [this] { watch(); });
}

// Wakes the watcher and joins it. It returns once all peers have left too, so a
// rank that is done early waits for the others here.
void TcpSession::leave() {
  leaving = true;
  uint64_t one = 1;
  if (write(wake, &one, sizeof one) == sizeof one)
    watcher.join();
  else
    watcher.detach();
}

TcpSession::~TcpSession() { close(wake); }

std::string TcpSession::nameOf(int peer) const {
  return concat("rank ", peer, " on node '", hosts[size_t(peer)], "'");
}

// May be called on any thread. A peer that cannot take a byte will be found to
// be silent.
void TcpSession::tell(Word word, int except) {
  for (int peer : peers)
    if (peer != except)
      link(peer).say(byteOf(word));
}

// Only rank 0 reaches every rank. The word of another rank goes to rank 0,
// which passes it on.
void TcpSession::abort(ExitCode code) {
  tell({Word::ends, int(code)});
  end(int(code));
}

// Ends this rank, and on rank 0 the whole job, because `peer` is gone.
void TcpSession::gone(int peer, const std::string &why) {
  // Not through fail()'s abort, since the job may be ending already.
  if (self == 0)
    tell({Word::ends, int(ExitCode::machineFailed)}, peer);
  if (self == 0 || speaks)
    fail(machineError(nameOf(peer) + " was lost (" + why + ")"));
  // Leave time for another rank to print what happened first.
  std::this_thread::sleep_for(std::chrono::seconds(secondsToSayWhy));
  leaveRecord(ExitCode::machineFailed);
  end(int(ExitCode::machineFailed));
}

void TcpSession::lost(int link, int peer, const std::string &why) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    for (const Loss &loss : losses)
      if (loss.link == link && loss.peer == peer)
        return;
    losses.push_back({link, peer, why, std::chrono::steady_clock::now()});
  }
  uint64_t one = 1;
  (void)!write(all.mended[watchLink], &one, sizeof one);
}

// Ends the job if a rank was lost. Returns when to look again. What has arrived
// is heard first: a rank that has said that it leaves is not lost. A channel
// often breaks because the job is ending, so another rank is given two seconds
// to say why. A rank that is leaving needs the watch alone.
Deadline TcpSession::judgeLosses() {
  std::vector<Loss> posted;
  {
    std::lock_guard<std::mutex> lock(mutex);
    // A link that has been mended may break again, which is another loss.
    std::erase_if(losses, [&](const Loss &loss) {
      return !all.at(loss.link, loss.peer).state().broken;
    });
    posted = losses;
  }
  Deadline next = never;
  for (const Loss &loss : posted) {
    for (int peer : peers)
      hear(peer);
    bool isWatch = loss.link == watchLink;
    // A rank that has left needs its watch no more, but may owe data.
    if ((left[size_t(loss.peer)] && (isWatch || leaving)) ||
        (leaving && !isWatch))
      continue;
    Link::State state = all.at(loss.link, loss.peer).state();
    if (!state.broken)
      continue;
    Deadline patience =
        loss.since + std::chrono::seconds(isWatch ? 0 : secondsToSayWhy);
    if (std::chrono::steady_clock::now() >= patience) {
      if (state.number == 0) // rank 0 has reached it, and cannot say why
        fail(machineError(loss.why));
      gone(loss.peer, loss.why);
    }
    next = std::min(next, patience);
  }
  return next;
}

// Returns true if the peer has the last word, or will never have it.
bool TcpSession::isDone(int peer) {
  if (link(peer).isDelivered())
    return true;
  std::lock_guard<std::mutex> lock(mutex);
  return std::any_of(losses.begin(), losses.end(), [&](const Loss &loss) {
    return loss.link == watchLink && loss.peer == peer;
  });
}

// Reads what a peer sent.
void TcpSession::hear(int peer) {
  uint8_t words[64];
  size_t got;
  do {
    got = link(peer).receive(std::array{iovec{words, sizeof words}, iovec{}});
    if (got > 0)
      heard[size_t(peer)] = std::chrono::steady_clock::now();
    for (size_t at = 0; at < got; ++at)
      hear(peer, words[at]);
  } while (got == sizeof words);
}

void TcpSession::hear(int peer, uint8_t byte) {
  std::optional<Word> word = parseWord(byte);
  if (!word)
    gone(peer, "it sent a word that no rank sends");
  if (word->kind == Word::leaves)
    left[size_t(peer)] = true;
  if (word->kind == Word::ends) {
    if (self == 0)
      tell(*word, peer);
    leaveRecord(ExitCode(word->code));
    end(word->code);
  }
}

// The watcher's loop, until this rank and all its peers leave.
void TcpSession::watch() {
  bool wakes = true, said = false;
  // Speaks at least four times within the limit.
  double pause = silence > 0 ? std::min(beat, silence / 4) : beat;
  Deadline next = std::chrono::steady_clock::now();
  auto allLeft = [&] {
    return std::ranges::all_of(peers,
                               [&](int peer) { return left[size_t(peer)]; });
  };
  auto allAreDone = [&] {
    return std::ranges::all_of(peers, [&](int peer) { return isDone(peer); });
  };
  while (true) {
    Deadline losses = judgeLosses();
    // Rank 0 says so last: while any rank still works, it must be able to learn
    // through rank 0 that another one has failed.
    if (leaving && !said && (self != 0 || allLeft())) {
      tell({Word::leaves});
      said = true;
    }
    bool ends = said && allLeft();
    if (ends && (self != 0 || allAreDone()))
      return;
    auto now = std::chrono::steady_clock::now();
    if (now >= next) {
      tell({Word::here});
      next = inSeconds(pause);
    }
    // poll() ignores entries with a negative descriptor. The eventfd stays
    // readable once written, so it is left out after the first time.
    int mended = all.mended[watchLink];
    std::vector<pollfd> entries = {{wakes ? wake : -1, POLLIN, 0},
                                   {mended, POLLIN, 0}};
    for (int peer : peers)
      entries.push_back({link(peer).descriptor(), POLLIN, 0});
    // No event says that a byte was acknowledged.
    Deadline soon = ends ? inSeconds(0.01) : std::min(next, losses);
    if (poll(entries.data(), entries.size(), pollTimeout(soon)) < 0)
      continue; // a signal
    wakes &= entries[0].revents == 0;
    uint64_t count;
    if (entries[1].revents)
      (void)!read(mended, &count, sizeof count);
    for (size_t i = 0; i < peers.size(); ++i) {
      int peer = peers[i];
      // A link that is broken, or was, may have words that were read early.
      if (entries[i + 2].revents || entries[1].revents) {
        hear(peer);
      } else if (silence > 0 && !left[size_t(peer)] &&
                 std::chrono::steady_clock::now() - heard[size_t(peer)] >
                     std::chrono::duration<double>(silence)) {
        char text[64];
        snprintf(text, sizeof text, "no answer for %g s", silence);
        gone(peer, text + whereabouts());
      }
    }
  }
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The watch's loop: hear, speak, sleep. MPI offers no wait with a deadline that
// does not spin, so it asks at each beat what has arrived. Only while the job
// ends does it ask every millisecond.
#include "runtime/comm/mpi/mpi_watch.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/thread.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace fsdpc::runtime {

namespace {

constexpr double beat = 5; // at most so many seconds between two signs of life

} // namespace

// A star: rank 0 watches all others, and each of them watches rank 0.
MpiWatch::MpiWatch(const MpiPlugin *mpi, void *channel, int rank,
                   double silence, std::vector<std::string> names)
    : mpi(mpi), channel(channel), self(rank), silence(silence),
      hosts(std::move(names)),
      heard(hosts.size(), std::chrono::steady_clock::now()),
      left(hosts.size()) {
  for (int peer = 0; peer < int(hosts.size()); ++peer)
    if (peer != self && (self == 0 || peer == 0))
      peers.push_back(peer);
  watcher = startThread("the watch of ranks", [this] { watch(); });
}

// Blocks until all ranks leave, which the watcher's return means.
MpiWatch::~MpiWatch() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    leaving = true;
  }
  wake.notify_one();
  watcher.join();
}

bool MpiWatch::allLeft() const {
  return std::all_of(peers.begin(), peers.end(),
                     [&](int peer) { return left[size_t(peer)]; });
}

// Anything that arrives is a sign of life, even a byte that is not a word.
void MpiWatch::hearAll() {
  int peer;
  unsigned char byte;
  while (mpi->hear(channel, &peer, &byte)) {
    heard[size_t(peer)] = std::chrono::steady_clock::now();
    std::optional<Word> word = parseWord(byte);
    left[size_t(peer)] =
        left[size_t(peer)] || (word && word->kind == Word::leaves);
  }
}

// `now` is from before the watch heard all that had arrived, since it may have
// been stopped in between.
void MpiWatch::checkSilence(Deadline now) {
  auto limit = std::chrono::duration<double>(silence);
  for (int peer : peers) {
    if (silence <= 0 || left[size_t(peer)] ||
        now - heard[size_t(peer)] <= limit)
      continue;
    // If rank 0 is silent, all others notice, and rank 1 speaks.
    if (self > 1)
      std::this_thread::sleep_for(std::chrono::seconds(5));
    char text[64];
    snprintf(text, sizeof text, "no answer for %g s", silence);
    fail(machineError(concat("rank ", peer, " on node '", hosts[size_t(peer)],
                             "' was lost (", text, ")", whereabouts())));
  }
}

void MpiWatch::watch() {
  double pause = silence > 0 ? std::min(beat, silence / 4) : beat;
  Deadline next = heard[size_t(self)], awake = next; // when it was made
  std::vector<bool> told(hosts.size());              // that this rank leaves
  bool ends = false;
  for (;;) {
    // A rank that was stopped itself, and goes on, knows nothing of the others.
    auto now = std::chrono::steady_clock::now();
    if (now - awake > std::chrono::duration<double>(2 * pause))
      heard.assign(heard.size(), now);
    awake = now;
    hearAll();
    checkSilence(now);
    // Rank 0 leaves last, because the others only hear of each other by it.
    bool says = ends && (self != 0 || allLeft());
    bool said = says;
    for (int peer : peers)
      if (says && !told[size_t(peer)]) {
        told[size_t(peer)] = mpi->tell(channel, peer, byteOf({Word::leaves}));
        said = said && told[size_t(peer)];
      }
    // `said` is true only once the word went out to every peer: tell() refuses
    // while the previous byte is still on its way.
    if (said && allLeft())
      return;
    if (!says && std::chrono::steady_clock::now() >= next) {
      for (int peer : peers)
        mpi->tell(channel, peer, byteOf({Word::here}));
      next = inSeconds(pause);
    }
    std::unique_lock<std::mutex> lock(mutex);
    if (ends)
      wake.wait_for(lock, std::chrono::milliseconds(1));
    else
      wake.wait_until(lock, next, [&] { return leaving; });
    ends = leaving;
  }
}

} // namespace fsdpc::runtime

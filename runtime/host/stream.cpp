// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Streams on threads (stream.h). Threads sleep on condition variables. `idle`
// and `awaited` avoid the lock when no sleeper can go on. They and the counters
// are sequentially consistent, so one side always sees what the other has
// written: either the sleeper sees the progress, or the other side sees the
// sleeper.
#include "runtime/host/stream.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/thread.h"
#include "runtime/host/openmp.h"
#include "runtime/support/concat.h"
#include "runtime/support/round_up.h"

#include <chrono>
#include <ctime>
#include <exception>
#include <utility>

namespace fsdpc::runtime {

static int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Time on a core, which tells a slow command from one that lost its core.
static int64_t threadNow() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

Stream::Stream(std::function<void(Command &)> execute)
    : execute(std::move(execute)), ring(capacity),
      memory(new char[memoryBytes]),
      thread(startThread("a stream", [this] { loop(); })) {}

// The thread runs all commands that are enqueued before it ends. Under the
// lock, or it could check, miss the flag and then sleep.
Stream::~Stream() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  arrival.notify_one();
  thread.join();
}

// Returns the next free slot, after sleeping while the ring is full. It is full
// with one slot to spare: that of the last completed command, whose `kept` says
// how much of the stream's memory is free.
Command &Stream::beginEnqueue() {
  uint64_t slot = tail.load();
  if (slot + 2 > capacity)
    waitFor(slot + 2 - capacity);
  return ring[slot % capacity];
}

// The slot must be complete before `tail` makes it visible to the thread.
void Stream::endEnqueue() {
  ring[tail.load() % capacity].kept = taken;
  ++tail;
  if (idle) {
    // Notified without the lock, for which the thread would sleep again.
    {
      std::lock_guard<std::mutex> lock(mutex);
    }
    arrival.notify_one();
  }
}

// May be called several times for one command. Fails if the command alone holds
// more than the ring has, since waiting would never end.
void *Stream::take(size_t bytes) {
  uint64_t size = roundUp<uint64_t>(bytes, memoryAlignment);
  uint64_t begin = taken;
  if (begin % memoryBytes + size > memoryBytes) // pieces do not wrap around
    begin += memoryBytes - begin % memoryBytes;
  for (;;) {
    // beginEnqueue leaves the slot of the last completed command alone.
    uint64_t done = completed.load();
    uint64_t freed = done ? ring[(done - 1) % capacity].kept : 0;
    if (begin + size <= freed + memoryBytes)
      break;
    if (done == tail.load())
      fail(runError(
          concat("a command with ", begin + size - freed,
                 " bytes of operands, but the queue of a stream holds ",
                 memoryBytes)));
    waitFor(done + 1);
  }
  taken = begin + size;
  return memory.get() + begin % memoryBytes;
}

// Says what it waits for before it looks again, so the stream cannot miss it.
// A stream that wakes its sleepers forgets them; those that must sleep on say
// it again.
void Stream::waitFor(uint64_t position) {
  auto reached = [&] { return completed.load() >= position; };
  if (reached())
    return;
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    awaited = std::min(awaited.load(), position);
    if (reached())
      return;
    progress.wait(lock);
  }
}

void Stream::loop() {
  // Primitives are single-threaded: oneDNN must not start OpenMP threads here.
  omp_set_num_threads(1);
  for (uint64_t position = 0;; ++position) {
    auto ready = [&] { return tail.load() > position || stopping.load(); };
    // Lets the thread that enqueues go on if it shares the core: else each
    // short command would wake this thread, which would run it and sleep again.
    for (int turn = 0; turn < 2 && !ready(); ++turn)
      std::this_thread::yield();
    if (!ready()) {
      idle = true;
      {
        std::unique_lock<std::mutex> lock(mutex);
        arrival.wait(lock, ready);
      }
      idle = false;
    }
    if (tail.load() == position)
      return; // stopping, and all commands have run
    Command &command = ring[position % capacity];
    try {
      if (times.empty()) {
        runCommand(command);
      } else {
        CommandTimes &kept = times[position % times.size()];
        kept.begin = now();
        int64_t cpu = threadNow();
        runCommand(command);
        kept.cpu = threadNow() - cpu;
        kept.end = now();
        kept.other = command.kind == Command::Wait ? command.other : nullptr;
      }
      // No caller could catch it: the job ends.
    } catch (const std::exception &exception) {
      fail(runError(exception.what()));
    }
    // From here on the slot and the memory of this command may be reused.
    completed = position + 1;
    // Waking a thread after every command would cost more than short commands.
    if (completed.load() >= awaited.load()) {
      {
        std::lock_guard<std::mutex> lock(mutex);
        awaited = UINT64_MAX;
      }
      progress.notify_all();
    }
  }
}

void Stream::runCommand(Command &command) {
  if (command.kind == Command::Wait)
    runWait(command);
  else
    execute(command);
}

void Stream::runWait(const Command &command) {
  int64_t begin = now();
  command.other->waitFor(command.position);
  // Only sleeps of waits count, which are for other streams.
  waited += now() - begin;
}

} // namespace fsdpc::runtime

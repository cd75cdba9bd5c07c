// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A stream of the host device: a thread that runs commands in the order in
// which they were enqueued. An event is a position in a stream. So recording
// one costs nothing, and waiting for one means to wait until that stream has
// completed as many commands. A command's operands, lists and captures are
// copied to memory of the stream's, another ring, unless they are the rank's
// own buffers: enqueuing allocates nothing.
#pragma once

#include "runtime/include/fsdpc.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace fsdpc::runtime {

/// One command, in a slot of the stream's ring.
struct Command {
  enum Kind {
    Wait,
    Run,
    Launch,
    Matmul,
    Convolution,
    Pooling,
    Attention
  } kind = Run;
  void (*work)(void *captures) = nullptr; ///< Run: runs it, destroys captures
  void *captures = nullptr;               ///< Run: in the stream's memory
  fsdpc_kernel_body kernel = nullptr;     ///< Launch, Attention
  int64_t extent = 0, grain = 1;          ///< Launch
  /// Launch: the kernel's; library calls: the operands. In the stream's memory.
  void **buffers = nullptr;
  int plan = 0;                  ///< library calls
  class Stream *other = nullptr; ///< Wait: the stream to wait for
  uint64_t position = 0;         ///< Wait: commands that it must have completed
  uint64_t kept = 0; ///< end of what this command holds of the stream's memory
};

/// When a command ran, in nanoseconds of std::chrono::steady_clock.
struct CommandTimes {
  int64_t begin = 0, end = 0;
  /// Time in [begin, end) that the stream's thread spent on a core.
  int64_t cpu = 0;
  const class Stream *other = nullptr; ///< Wait: the stream that it waited for
};

/// The stream's thread starts in the constructor and is joined in the
/// destructor.
class Stream {
public:
  /// Runs every command except waits by calling `execute` on the stream's
  /// thread.
  explicit Stream(std::function<void(Command &)> execute);
  ~Stream();
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;

  /// Enqueues the command that `fill` writes into a slot. Sleeps while the ring
  /// is full. One thread at a time may call it.
  template <typename Fill> void enqueue(Fill &&fill) {
    fill(beginEnqueue());
    endEnqueue();
  }

  /// Enqueues `body` as a Run command.
  template <typename Body> void enqueueWork(Body &&body) {
    using Type = std::decay_t<Body>;
    static_assert(alignof(Type) <= memoryAlignment);
    void *captures = new (take(sizeof(Type))) Type(std::forward<Body>(body));
    enqueue([=](Command &command) {
      command.kind = Command::Run;
      command.captures = captures;
      command.work = [](void *place) {
        Type &work = *static_cast<Type *>(place);
        work();
        work.~Type();
      };
    });
  }

  /// Copies a list for the command that is enqueued next. The copy lives until
  /// that command has run. Sleeps while the stream's memory is full.
  template <typename T> T *keep(const T *values, int count) {
    static_assert(std::is_trivially_copyable_v<T>);
    T *place = static_cast<T *>(take(size_t(count) * sizeof(T)));
    std::copy(values, values + count, place);
    return place;
  }

  /// Number of commands enqueued so far; the position that an event records.
  uint64_t enqueued() const { return tail.load(); }
  /// Number of commands that have completed.
  uint64_t done() const { return completed.load(); }
  /// Returns true if the command is a wait. It must be one of the last few
  /// thousand; for a command that was overwritten the answer means nothing.
  bool isWait(uint64_t position) const {
    return ring[position % capacity].kind == Command::Wait;
  }
  /// Blocks until `position` commands have completed.
  void waitFor(uint64_t position);
  /// Returns the nanoseconds slept in Wait commands since the last call.
  int64_t takeWaitedNanoseconds() { return waited.exchange(0); }

  /// Keeps the times of the last `count` commands. Must be called before any
  /// command is enqueued.
  void keepTimes(size_t count) { times.resize(count); }
  /// Returns the times of command `position`, which must be done and one of the
  /// last `count`.
  const CommandTimes &timesOf(uint64_t position) const {
    return times[position % times.size()];
  }

private:
  /// Commands in flight, some of a step's; beyond them the loop waits for the
  /// stream.
  static constexpr uint64_t capacity = 4096;
  /// Some hundred bytes for a command.
  static constexpr uint64_t memoryBytes = 512 << 10;
  static constexpr uint64_t memoryAlignment = 16;

  /// Returns memory for the command that is enqueued next.
  void *take(size_t bytes);
  Command &beginEnqueue();
  void endEnqueue();
  void loop();
  void runCommand(Command &command);
  void runWait(const Command &command);

  std::function<void(Command &)> execute;
  std::vector<Command> ring;
  /// The ring of bytes. `taken` counts all bytes ever taken; those before the
  /// `kept` of the last command that completed are free.
  std::unique_ptr<char[]> memory;
  uint64_t taken = 0;
  std::vector<CommandTimes> times; ///< a ring buffer; empty: times are not kept
  std::atomic<uint64_t> tail{0};   ///< commands enqueued
  std::atomic<uint64_t> completed{0}; ///< commands done; their slots are free
  /// The first position that a thread asleep on `progress` waits for. Changed
  /// under the lock.
  std::atomic<uint64_t> awaited{UINT64_MAX};
  std::atomic<bool> idle{false}; ///< the stream's thread is asleep on `arrival`
  std::atomic<bool> stopping{false};
  std::atomic<int64_t> waited{0};
  std::mutex mutex;
  std::condition_variable arrival, progress;
  std::thread thread; ///< last member, since it uses all others
};

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A stream of an emulated device: a thread that runs its work in order, with
// random delays. So work on several streams that no event orders runs in
// varying order, and a missing event shows.
#pragma once

#include "runtime/cuda/api.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>

namespace fsdpc::runtime::emulation {

/// Random delays and orders of one stream. Not thread-safe: it belongs to one
/// stream's thread.
class Chance {
public:
  /// Every `stream` has its own sequence. Seed 0 means no delays and pick() =
  /// 0.
  Chance(uint64_t seed, uint64_t stream);
  /// Sleeps now and then, for up to a millisecond.
  void delay();
  /// Returns a number in [0, count).
  int64_t pick(int64_t count);

private:
  bool idle;
  std::minstd_rand random;
};

/// A device and the error that its work left. After an error all later work is
/// skipped and all calls fail, as on a GPU.
class Device {
public:
  explicit Device(int number) : number(number) {}
  const int number;
  /// Only the first error counts; later ones are its consequences.
  void fail(CudaStatus status, const std::string &detail);
  bool failed() const { return error != cudaOk; }
  /// Returns cudaOk, or the error, with its detail for textOf.
  CudaStatus state() const;

private:
  std::atomic<CudaStatus> error{cudaOk};
  mutable std::mutex mutex;
  std::string detail;
};

/// A function that a stream runs on its thread; it must not throw.
using Work = std::function<void(Chance &)>;

/// A point in a stream that others wait for.
/// Reached once and for good; every record of an event makes a new one.
class Marker {
public:
  /// Wakes everyone who waits.
  void reach();
  void await();
  bool isReached();

private:
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
};

/// The thread starts in the constructor and holds a DeviceAccess while it
/// lives. Work gets the stream's Chance.
class Stream {
public:
  Stream(Device &device, uint64_t seed);
  /// Runs all enqueued work, then ends.
  ~Stream();
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;

  /// Enqueues work that is skipped if the device has failed.
  void enqueue(Work work);
  /// Enqueues waits and marks, which run even if the device has failed.
  void enqueueAlways(Work work);
  /// Blocks until all work enqueued before has run.
  void synchronize();

  Device &device;

private:
  void loop();

  Chance chance;
  std::mutex mutex;
  std::condition_variable arrival;
  std::deque<Work> queue;
  bool stopping = false;
  std::thread thread; ///< last member, since it uses all others
};

} // namespace fsdpc::runtime::emulation

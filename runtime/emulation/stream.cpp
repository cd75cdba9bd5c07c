// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Streams on threads, their delays, and the sticky error of a device. Each
// stream has its own sequence of random numbers, so that a run's delays depend
// only on the seed and the order in which streams are made.
#include "runtime/emulation/stream.h"
#include "runtime/comm/thread.h"
#include "runtime/emulation/memory.h"
#include "runtime/emulation/status.h"

#include <chrono>
#include <memory>
#include <utility>

namespace fsdpc::runtime::emulation {

// Seeds that differ by one must not give similar sequences, hence the
// multiplication.
Chance::Chance(uint64_t seed, uint64_t stream)
    : idle(seed == 0),
      random(unsigned(seed * 0x9e3779b97f4a7c15u >> 33) + stream * 7919 + 1) {}

void Chance::delay() {
  // One command in 16 is delayed: enough to reorder streams, and cheap enough
  // to train.
  if (idle || random() % 16 != 0)
    return;
  // Most delays are short; a few are as long as a long kernel.
  int64_t microseconds = random() % 16 == 0 ? 1000 : random() % 50;
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

int64_t Chance::pick(int64_t count) {
  return idle ? 0 : int64_t(random()) % count;
}

void Device::fail(CudaStatus status, const std::string &why) {
  std::lock_guard<std::mutex> lock(mutex);
  if (error != cudaOk)
    return;
  detail = why;
  // After the detail, since failed() reads it without the lock.
  error = status;
}

CudaStatus Device::state() const {
  if (error == cudaOk)
    return cudaOk;
  std::lock_guard<std::mutex> lock(mutex);
  return status::refuse(error, detail);
}

void Marker::reach() {
  // Under the lock, because the waiter may destroy the marker as soon as it is
  // reached.
  std::lock_guard<std::mutex> lock(mutex);
  reached = true;
  changed.notify_all();
}

void Marker::await() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [this] { return reached; });
}

bool Marker::isReached() {
  std::lock_guard<std::mutex> lock(mutex);
  return reached;
}

static std::atomic<uint64_t> streamsMade{0};

Stream::Stream(Device &device, uint64_t seed)
    : device(device), chance(seed, streamsMade++),
      thread(startThread("a stream", [this] { loop(); })) {}

Stream::~Stream() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  arrival.notify_one();
  thread.join();
}

void Stream::enqueue(Work work) {
  enqueueAlways([this, work = std::move(work)](Chance &chance) {
    chance.delay();
    if (!device.failed())
      work(chance);
  });
}

void Stream::enqueueAlways(Work work) {
  std::lock_guard<std::mutex> lock(mutex);
  queue.push_back(std::move(work));
  arrival.notify_one();
}

// A mark runs even if the device has failed, so this always returns.
void Stream::synchronize() {
  // On the heap: the work may touch it after the waiter has gone on.
  auto marker = std::make_shared<Marker>();
  enqueueAlways([marker](Chance &) { marker->reach(); });
  marker->await();
}

// Ends only when the queue is empty, so that a stream that is destroyed has run
// its work.
void Stream::loop() {
  // Only work of streams may access device memory (memory.h).
  DeviceAccess access;
  for (;;) {
    Work work;
    {
      std::unique_lock<std::mutex> lock(mutex);
      arrival.wait(lock, [this] { return stopping || !queue.empty(); });
      if (queue.empty())
        return;
      work = std::move(queue.front());
      queue.pop_front();
    }
    work(chance);
  }
}

} // namespace fsdpc::runtime::emulation

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Streams, events and launches of the host device, with arbitrary host code as
// work: it can wait for other work and record orders, which work that goes
// through the C ABI cannot.
#include "runtime/host/host_device.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

void pauseFor(int microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

// Parameterised by the number of compute threads.
class HostDevices : public ::testing::TestWithParam<int> {
protected:
  std::unique_ptr<HostDevice> make(const Manifest &manifest) {
    auto device = HostDevice::make(manifest, GetParam());
    EXPECT_TRUE(device) << device.error().message;
    return device ? std::move(*device) : nullptr;
  }
};

class Streams : public HostDevices {};

// Work on one stream runs in order, also when the ring wraps around.
TEST_P(Streams, runWorkInOrder) {
  auto device = make({});
  std::vector<int> order;
  for (int i = 0; i < 10000; ++i) // more than a queue holds
    device->run(FSDPC_STREAM_GATHER, [&order, i] { order.push_back(i); });
  device->synchronize();
  ASSERT_EQ(order.size(), 10000u);
  for (int i = 0; i < 10000; ++i)
    ASSERT_EQ(order[i], i);
}

// The memory that a command holds stays its own until it has run, also while
// the ring is full: 4096 commands that hold 120 bytes each fit into the
// stream's memory, and the command after them does not.
TEST_P(Streams, keepOperandsWhileTheRingIsFull) {
  auto device = make({});
  std::atomic<bool> released{false};
  std::atomic<int> wrong{0};
  device->run(FSDPC_STREAM_GATHER, [] {});
  device->synchronize(); // one command is done
  device->run(FSDPC_STREAM_GATHER, [&] {
    while (!released)
      pauseFor(10);
  });
  std::thread timer([&] {
    pauseFor(300'000);
    released = true;
  });
  std::array<uint64_t, 13> values;
  for (uint64_t i = 0; i < 4095; ++i) {
    values.fill(i);
    device->run(FSDPC_STREAM_GATHER, [&wrong, values, i] {
      for (uint64_t value : values)
        wrong += value != i;
    });
  }
  std::array<char, 128 << 10> large{};
  device->run(FSDPC_STREAM_GATHER, [&wrong, large] { wrong += large[0]; });
  device->synchronize();
  timer.join();
  EXPECT_EQ(wrong, 0);
}

// Other streams continue while one is blocked.
TEST_P(Streams, runAtOnce) {
  auto device = make({});
  std::atomic<bool> released{false};
  device->run(FSDPC_STREAM_COMPUTE, [&] {
    while (!released)
      pauseFor(10);
  });
  device->run(FSDPC_STREAM_REDUCE, [&] { released = true; });
  device->synchronize();
  EXPECT_TRUE(released);
}

// A random program over three streams, with random delays: everything that a
// wait follows must have happened. `done` is plain memory, so that the thread
// sanitizer checks that events order the accesses.
TEST_P(Streams, eventsOrderRandomPrograms) {
  std::mt19937 random(7);
  Manifest manifest;
  manifest.events = 5;
  auto device = make(manifest);
  for (int round = 0; round < 20; ++round) {
    constexpr int steps = 100;
    std::vector<int> done(steps, 0);
    // The steps that precede each event's record, and those on each stream.
    std::vector<int> recorded[5], onStream[FSDPC_STREAMS];
    std::atomic<int> failures{0};
    for (int step = 0; step < steps; ++step) {
      int stream = int(random() % FSDPC_STREAMS), event = int(random() % 5);
      int delay = random() % 8 == 0 ? int(random() % 300) : 0;
      std::vector<int> before = onStream[stream];
      if (random() % 2) {
        device->eventWait(stream, event);
        before.insert(before.end(), recorded[event].begin(),
                      recorded[event].end());
      }
      device->run(stream, [&done, &failures, before, step, delay] {
        if (delay)
          pauseFor(delay);
        for (int earlier : before)
          failures += done[earlier] == 0;
        done[step] = 1;
      });
      before.push_back(step);
      onStream[stream] = before;
      if (random() % 2) {
        int other = int(random() % 5);
        device->eventRecord(stream, other);
        recorded[other] = before;
      }
    }
    device->synchronize();
    ASSERT_EQ(failures, 0) << "round " << round;
  }
}

// An event may be recorded again; a wait refers to the last record before it.
TEST_P(Streams, waitForTheLastRecord) {
  Manifest manifest;
  manifest.events = 1;
  auto device = make(manifest);
  int value = 0, seen = 0;
  device->eventWait(FSDPC_STREAM_COMPUTE, 0); // never recorded: no wait
  device->run(FSDPC_STREAM_GATHER, [&] { value = 1; });
  device->eventRecord(FSDPC_STREAM_GATHER, 0);
  device->run(FSDPC_STREAM_GATHER, [&] {
    pauseFor(500);
    value = 2;
  });
  device->eventRecord(FSDPC_STREAM_GATHER, 0);
  device->eventWait(FSDPC_STREAM_COMPUTE, 0);
  device->run(FSDPC_STREAM_COMPUTE, [&] { seen = value; });
  device->synchronize();
  EXPECT_EQ(seen, 2);
}

// The time that the compute stream waits for another stream counts as exposed,
// once. The pause begins when the compute stream is about to wait: on a busy
// machine its thread may come to that late.
TEST_P(Streams, countExposedTime) {
  Manifest manifest;
  manifest.events = 1;
  auto device = make(manifest);
  std::atomic<bool> reached = false;
  device->run(FSDPC_STREAM_GATHER, [&] {
    while (!reached)
      std::this_thread::yield();
    pauseFor(20000);
  });
  device->eventRecord(FSDPC_STREAM_GATHER, 0);
  device->run(FSDPC_STREAM_COMPUTE, [&] { reached = true; });
  device->eventWait(FSDPC_STREAM_COMPUTE, 0);
  device->synchronize();
  EXPECT_GE(device->takeExposedNanoseconds(), 1000000);
  EXPECT_EQ(device->takeExposedNanoseconds(), 0);
}

class Launches : public HostDevices {};

struct Visits {
  std::vector<std::atomic<int>> *counts;
  std::atomic<int64_t> *smallest;
};

void visit(int64_t begin, int64_t end, void *const *buffers) {
  auto &visits = *static_cast<Visits *>(buffers[0]);
  for (int64_t i = begin; i < end; ++i)
    ++(*visits.counts)[i];
  int64_t length = end - begin, smallest = *visits.smallest;
  while (length < smallest &&
         !visits.smallest->compare_exchange_weak(smallest, length))
    ;
}

// Every index is visited exactly once, in pieces of at least the grain.
TEST_P(Launches, cutTheExtentExactly) {
  auto device = make({});
  for (int64_t extent : {0, 1, 2, 7, 100, 4097})
    for (int64_t grain : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> counts(extent);
      std::atomic<int64_t> smallest{1 << 30};
      Visits visits{&counts, &smallest};
      // The list of buffers is copied, so it may be freed when launch returns.
      auto buffers = std::make_unique<void *[]>(1);
      buffers[0] = &visits;
      fsdpc_kernel kernel = {"visit", visit, extent, grain, 0, 0};
      device->launch(&kernel, buffers.get(), 1);
      buffers.reset();
      device->synchronize();
      for (int64_t i = 0; i < extent; ++i)
        ASSERT_EQ(counts[i], 1) << extent << " by " << grain;
      if (extent) {
        EXPECT_GE(smallest, std::min(grain, extent));
      }
    }
}

// A launch sees everything that the launches before it wrote.
TEST_P(Launches, followEachOther) {
  auto device = make({});
  std::vector<float> data(10000, 0);
  void *buffers[] = {data.data()};
  auto halve = [](int64_t begin, int64_t end, void *const *b) {
    float *values = static_cast<float *>(b[0]);
    for (int64_t j = begin; j < end; ++j)
      values[j] = values[j] * 0.5f + float(j);
  };
  fsdpc_kernel kernel = {"halve", halve, int64_t(data.size()), 100, 0, 0};
  for (int i = 0; i < 1000; ++i)
    device->launch(&kernel, buffers, 1);
  device->synchronize();
  float expected = 0;
  for (int i = 0; i < 1000; ++i)
    expected = expected * 0.5f + 9999.0f;
  EXPECT_EQ(data[9999], expected);
}

// All pieces have run when parallelFor returns.
TEST_P(Launches, parallelForReturnsWhenDone) {
  auto device = make({});
  std::atomic<int64_t> sum{0};
  int64_t seen = 0;
  device->run(FSDPC_STREAM_COMPUTE, [&] {
    device->parallelFor(1000, 10, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        sum += i;
    });
    seen = sum;
  });
  device->synchronize();
  EXPECT_EQ(seen, 999 * 1000 / 2);
}

// As Device::allocate documents, and every byte can be written.
TEST_P(Launches, memoryIsAligned) {
  auto device = make({});
  for (size_t bytes :
       {size_t(1), size_t(100), size_t(3) << 20, (size_t(5) << 20) + 1}) {
    void *memory = device->allocate(bytes);
    ASSERT_TRUE(memory);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) %
                  (bytes >= size_t(1) << 20 ? 4096 : 64),
              0u);
    std::memset(memory, 1, bytes);
    device->release(memory, bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, Streams, ::testing::Values(1, 2, 3));
INSTANTIATE_TEST_SUITE_P(Threads, Launches, ::testing::Values(1, 2, 3));

} // namespace

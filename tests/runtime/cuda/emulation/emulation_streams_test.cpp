// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Streams, events and graphs of the emulation behave as CUDA's, including the
// rules of stream capture. Random programs check that everything an event
// orders happens in order; another test checks that what no event orders does
// run in either order.
#include "tests/runtime/cuda/emulation/emulation_test.h"

#include <atomic>
#include <numeric>
#include <random>

using namespace fsdpc;
using namespace fsdpc::runtime;

using namespace fsdpc::runtime::emulation;

namespace {

class Streams : public EmulationTest {};

// Work on one stream runs in order.
TEST_F(Streams, runWorkInOrder) {
  CudaStream one = stream();
  std::vector<int> order, expected(1000);
  for (int i = 0; i < 1000; ++i)
    run(one, [&order, i] { order.push_back(i); });
  ASSERT_CUDA(cuda.synchronizeStream(one));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

// With blocks at once, each of two blocks sees that the other has begun.
TEST(Blocks, runAtTheSameTime) {
  static std::atomic<int> begun;
  static const fsdpc_kernel kernel = {"meet",
                                      [](int64_t, int64_t, void *const *) {
                                        ++begun;
                                        while (begun < 2)
                                          std::this_thread::yield();
                                      },
                                      1,
                                      1,
                                      1,
                                      1};
  Settings settings;
  settings.blocksAtOnce = 2;
  Emulation cuda(settings);
  CudaStream stream = nullptr;
  ASSERT_CUDA(cuda.createStream(stream, false));
  ASSERT_CUDA(cuda.launch(&kernel, 2, 1, nullptr, 0, stream));
  ASSERT_CUDA(cuda.synchronizeStream(stream));
  EXPECT_EQ(begun, 2);
  ASSERT_CUDA(cuda.destroyStream(stream));
}

// A wait refers to the last record before it was enqueued, and the event may be
// recorded again while the wait is pending.
TEST_F(Streams, waitForTheRecordBefore) {
  CudaStream one = stream(), two = stream();
  CudaEvent event = this->event();
  std::atomic<bool> first{false}, second{false};
  std::atomic<int> seen{0};
  run(one, [&] {
    while (!first)
      pauseFor(10);
  });
  ASSERT_CUDA(cuda.recordEvent(event, one));
  ASSERT_CUDA(cuda.waitEvent(two, event));
  run(two, [&] { seen = 1; });
  run(one, [&] {
    while (!second)
      pauseFor(10);
  });
  ASSERT_CUDA(cuda.recordEvent(event, one));
  bool done = true;
  ASSERT_CUDA(cuda.queryEvent(event, done));
  EXPECT_FALSE(done);
  EXPECT_EQ(seen, 0);
  first = true; // the second record is still blocked
  ASSERT_CUDA(cuda.synchronizeStream(two));
  EXPECT_EQ(seen, 1);
  ASSERT_CUDA(cuda.queryEvent(event, done));
  EXPECT_FALSE(done);
  second = true;
  ASSERT_CUDA(cuda.synchronizeStream(one));
  ASSERT_CUDA(cuda.queryEvent(event, done));
  EXPECT_TRUE(done);
}

// An event that was never recorded is complete.
TEST_F(Streams, waitForNothingWhereNobodyRecorded) {
  CudaStream one = stream();
  CudaEvent event = this->event();
  ASSERT_CUDA(cuda.waitEvent(one, event));
  ASSERT_CUDA(cuda.synchronizeStream(one));
  bool done = false;
  ASSERT_CUDA(cuda.queryEvent(event, done));
  EXPECT_TRUE(done);
}

// A random program over three streams: everything that a wait follows must have
// happened. `done` is plain memory, so that the thread sanitizer checks that
// events order the accesses.
void runRandomProgram(
    std::mt19937 &random, std::vector<CudaStream> streams,
    std::vector<CudaEvent> events, Emulation &cuda, std::vector<int> &done,
    const std::function<void(CudaStream, std::function<void()>)> &run,
    std::atomic<int> &failures) {
  std::vector<std::vector<int>> recorded(events.size()),
      onStream(streams.size());
  for (size_t step = 0; step < done.size(); ++step) {
    size_t stream = random() % streams.size();
    size_t awaited = random() % events.size();
    std::vector<int> &before = onStream[stream];
    if (random() % 2) {
      ASSERT_CUDA(cuda.waitEvent(streams[stream], events[awaited]));
      before.insert(before.end(), recorded[awaited].begin(),
                    recorded[awaited].end());
    }
    int delay = random() % 8 == 0 ? int(random() % 200) : 0;
    run(streams[stream], [&done, &failures, before, step, delay] {
      if (delay)
        pauseFor(delay);
      for (int earlier : before)
        failures += done[earlier] == 0;
      done[step] = 1;
    });
    before.push_back(int(step));
    if (random() % 2) {
      size_t other = random() % events.size();
      ASSERT_CUDA(cuda.recordEvent(events[other], streams[stream]));
      recorded[other] = before;
    }
  }
}

// Several rounds, since delays differ.
TEST_F(Streams, eventsOrderRandomPrograms) {
  std::mt19937 random(7);
  std::vector<CudaStream> streams = {stream(), stream(), stream()};
  std::vector<CudaEvent> events = {event(), event(), event(), event()};
  for (int round = 0; round < 20; ++round) {
    std::vector<int> done(100, 0);
    std::atomic<int> failures{0};
    runRandomProgram(
        random, streams, events, cuda, done,
        [&](CudaStream s, std::function<void()> work) {
          this->run(s, std::move(work));
        },
        failures);
    for (CudaStream stream : streams)
      ASSERT_CUDA(cuda.synchronizeStream(stream));
    ASSERT_EQ(failures, 0) << "round " << round;
  }
}

// Work that no event orders runs in either order sooner or later.
TEST_F(Streams, runWhatNoEventOrdersEitherWay) {
  CudaStream one = stream(), two = stream();
  bool seen[2] = {};
  for (int round = 0; round < 1000 && !(seen[0] && seen[1]); ++round) {
    std::atomic<bool> written{false}, read{false};
    run(one, [&] { written = true; });
    run(two, [&] { read = written.load(); });
    ASSERT_CUDA(cuda.synchronizeStream(one));
    ASSERT_CUDA(cuda.synchronizeStream(two));
    seen[read] = true;
  }
  EXPECT_TRUE(seen[0] && seen[1]);
}

// A kernel can only be launched on a stream of the selected device.
TEST_F(Streams, belongToTheDeviceTheyWereMadeOn) {
  CudaStream one = stream();
  run(one, [] {});
  ASSERT_CUDA(cuda.selectDevice(1));
  EXPECT_EQ(tryRun(one, [] {}), status::invalidHandle);
  ASSERT_CUDA(cuda.selectDevice(0));
  EXPECT_EQ(cuda.selectDevice(8), status::invalidDevice);
}

// Handles that were destroyed give an error, not a crash.
TEST_F(Streams, deadHandlesAreFoundOut) {
  CudaStream one = stream();
  CudaEvent event = this->event();
  ASSERT_CUDA(cuda.destroyStream(one));
  EXPECT_EQ(cuda.synchronizeStream(one), status::invalidHandle);
  EXPECT_EQ(cuda.destroyStream(one), status::invalidHandle);
  ASSERT_CUDA(cuda.destroyEvent(event));
  EXPECT_EQ(cuda.destroyEvent(event), status::invalidHandle);
  EXPECT_EQ(cuda.alive().streams, 0u);
  EXPECT_EQ(cuda.alive().events, 0u);
}

class Graphs : public EmulationTest {};

// Nothing runs during the capture; every launch runs all of it.
TEST_F(Graphs, replayWhatWasCaptured) {
  CudaStream one = stream();
  int count = 0;
  ASSERT_CUDA(cuda.beginCapture(one));
  run(one, [&] { ++count; });
  run(one, [&] { count *= 10; });
  CudaGraph graph = nullptr;
  ASSERT_CUDA(cuda.endCapture(one, graph));
  ASSERT_CUDA(cuda.synchronizeStream(one));
  EXPECT_EQ(count, 0);
  ASSERT_CUDA(cuda.launchGraph(graph, one));
  ASSERT_CUDA(cuda.launchGraph(graph, one));
  // A graph in flight completes even if its handle is destroyed.
  ASSERT_CUDA(cuda.destroyGraph(graph));
  ASSERT_CUDA(cuda.synchronizeStream(one));
  EXPECT_EQ(count, 110);
}

// Every replay keeps the captured order across streams, and runs concurrently
// what no event orders.
TEST_F(Graphs, keepTheOrderAcrossStreams) {
  CudaStream one = stream(), two = stream();
  CudaEvent fork = event(), join = event();
  std::atomic<bool> other{false};
  std::vector<int> order;
  ASSERT_CUDA(cuda.beginCapture(one));
  run(one, [&] { order.push_back(1); });
  ASSERT_CUDA(cuda.recordEvent(fork, one));
  ASSERT_CUDA(cuda.waitEvent(two, fork));
  run(two, [&] {
    pauseFor(300);
    order.push_back(2);
    other = true;
  });
  ASSERT_CUDA(cuda.recordEvent(join, two));
  run(one, [&] { // needs the other lane to run concurrently
    while (!other)
      pauseFor(10);
  });
  ASSERT_CUDA(cuda.waitEvent(one, join));
  run(one, [&] { order.push_back(3); });
  CudaGraph graph = nullptr;
  ASSERT_CUDA(cuda.endCapture(one, graph));
  for (int i = 0; i < 5; ++i) {
    ASSERT_CUDA(cuda.launchGraph(graph, one));
    ASSERT_CUDA(cuda.synchronizeStream(one));
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
    order.clear();
    other = false;
  }
}

// Random programs, captured and replayed.
TEST_F(Graphs, keepTheOrderOfRandomPrograms) {
  std::mt19937 random(11);
  for (int round = 0; round < 10; ++round) {
    std::vector<CudaStream> streams = {stream(), stream(), stream()};
    std::vector<CudaEvent> events = {event(), event(), event(), event()};
    CudaEvent fork = event();
    std::vector<int> done(60, 0);
    std::atomic<int> failures{0};
    ASSERT_CUDA(cuda.beginCapture(streams[0]));
    ASSERT_CUDA(cuda.recordEvent(fork, streams[0]));
    for (size_t i = 1; i < streams.size(); ++i)
      ASSERT_CUDA(cuda.waitEvent(streams[i], fork));
    runRandomProgram(
        random, streams, events, cuda, done,
        [&](CudaStream s, std::function<void()> work) {
          this->run(s, std::move(work));
        },
        failures);
    for (size_t i = 1; i < streams.size(); ++i) {
      ASSERT_CUDA(cuda.recordEvent(fork, streams[i]));
      ASSERT_CUDA(cuda.waitEvent(streams[0], fork));
    }
    CudaGraph graph = nullptr;
    ASSERT_CUDA(cuda.endCapture(streams[0], graph));
    for (int i = 0; i < 3; ++i) {
      std::fill(done.begin(), done.end(), 0);
      ASSERT_CUDA(cuda.launchGraph(graph, streams[0]));
      ASSERT_CUDA(cuda.synchronizeStream(streams[0]));
      ASSERT_EQ(failures, 0) << "round " << round;
      ASSERT_EQ(std::accumulate(done.begin(), done.end(), 0), 60);
    }
  }
}

// A forbidden call invalidates a capture: its end gives no graph, and its
// streams are as before.
class CaptureRules : public EmulationTest {
protected:
  void expectSpoilt(CudaStream origin) {
    CudaGraph graph = &graph;
    EXPECT_EQ(tryRun(origin, [] {}), status::captureInvalidated);
    EXPECT_EQ(cuda.endCapture(origin, graph), status::captureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_CUDA(cuda.synchronizeStream(origin));
  }
};

// A capturing stream cannot be waited for.
TEST_F(CaptureRules, noSynchronisation) {
  CudaStream one = stream();
  ASSERT_CUDA(cuda.beginCapture(one));
  EXPECT_EQ(cuda.synchronizeStream(one), status::captureUnsupported);
  expectSpoilt(one);
}

// Nor can its events be queried.
TEST_F(CaptureRules, noQuery) {
  CudaStream one = stream();
  CudaEvent event = this->event();
  ASSERT_CUDA(cuda.beginCapture(one));
  ASSERT_CUDA(cuda.recordEvent(event, one));
  bool done;
  EXPECT_EQ(cuda.queryEvent(event, done), status::captureUnsupported);
  expectSpoilt(one);
  // The event belongs to the capture until it is recorded again.
  EXPECT_EQ(cuda.queryEvent(event, done), status::capturedEvent);
  EXPECT_EQ(cuda.waitEvent(one, event), status::capturedEvent);
  ASSERT_CUDA(cuda.recordEvent(event, one));
  EXPECT_CUDA(cuda.waitEvent(one, event));
}

// Allocation is not permitted on a thread that captures.
TEST_F(CaptureRules, noAllocation) {
  CudaStream one = stream();
  ASSERT_CUDA(cuda.beginCapture(one));
  void *memory;
  EXPECT_EQ(cuda.allocateDevice(memory, 16), status::captureUnsupported);
  expectSpoilt(one);
}

// Another thread may continue as if nothing were captured.
TEST_F(CaptureRules, bindTheirThreadAlone) {
  CudaStream one = stream(), other = stream();
  CudaEvent event = this->event();
  ASSERT_CUDA(cuda.beginCapture(one));
  std::thread([&] {
    void *memory;
    bool done;
    EXPECT_CUDA(cuda.allocateDevice(memory, 16));
    EXPECT_CUDA(cuda.recordEvent(event, other));
    EXPECT_CUDA(cuda.queryEvent(event, done));
    EXPECT_CUDA(cuda.synchronizeStream(other));
    CudaGraph graph;
    EXPECT_EQ(cuda.endCapture(one, graph), status::captureWrongThread);
  }).join();
  expectSpoilt(one);
}

// A graph cannot depend on work that is not in it.
TEST_F(CaptureRules, noWaitForWorkOutside) {
  CudaStream one = stream(), two = stream();
  CudaEvent event = this->event();
  ASSERT_CUDA(cuda.recordEvent(event, two));
  ASSERT_CUDA(cuda.beginCapture(one));
  EXPECT_EQ(cuda.waitEvent(one, event), status::captureIsolation);
  expectSpoilt(one);
}

// A capture ends on the stream that began it, after all others have joined.
TEST_F(CaptureRules, everyStreamJoins) {
  CudaStream one = stream(), two = stream();
  CudaEvent fork = event();
  ASSERT_CUDA(cuda.beginCapture(one));
  ASSERT_CUDA(cuda.recordEvent(fork, one));
  ASSERT_CUDA(cuda.waitEvent(two, fork));
  run(two, [] {});
  CudaGraph graph;
  EXPECT_EQ(cuda.endCapture(two, graph), status::captureUnmatched);
  EXPECT_EQ(cuda.endCapture(one, graph), status::captureInvalidated);

  ASSERT_CUDA(cuda.beginCapture(one));
  ASSERT_CUDA(cuda.recordEvent(fork, one));
  ASSERT_CUDA(cuda.waitEvent(two, fork));
  run(two, [] {});
  EXPECT_EQ(cuda.endCapture(one, graph), status::captureUnjoined);
}

// A wait between two captures would join them and invalidates both.
TEST_F(CaptureRules, capturesDoNotMerge) {
  CudaStream one = stream(), two = stream();
  CudaEvent event = this->event();
  ASSERT_CUDA(cuda.beginCapture(one));
  ASSERT_CUDA(cuda.beginCapture(two));
  EXPECT_EQ(cuda.beginCapture(two), status::illegalState);
  CudaGraph graph;
  EXPECT_EQ(cuda.endCapture(two, graph), status::captureInvalidated);
  ASSERT_CUDA(cuda.beginCapture(two));
  ASSERT_CUDA(cuda.recordEvent(event, two));
  EXPECT_EQ(cuda.waitEvent(one, event), status::captureMerge);
  EXPECT_EQ(cuda.endCapture(two, graph), status::captureInvalidated);
  expectSpoilt(one);
}

class LaunchFault : public EmulationTest {
protected:
  static Settings settings() {
    Settings settings;
    settings.fault = {Fault::launch, 3, 0};
    return settings;
  }
  LaunchFault() : EmulationTest(settings()) {}
};

// The failure shows after the launch, and nothing runs afterwards.
TEST_F(LaunchFault, showsLater) {
  CudaStream one = stream();
  CudaEvent event = this->event();
  int count = 0;
  for (int i = 0; i < 2; ++i)
    run(one, [&] { ++count; });
  ASSERT_CUDA(cuda.synchronizeStream(one));
  EXPECT_CUDA(tryRun(one, [&] { ++count; }));
  EXPECT_EQ(cuda.synchronizeStream(one), status::launchFailure);
  EXPECT_NE(cuda.errorText(status::launchFailure).find("'work'"),
            std::string::npos);
  EXPECT_EQ(count, 2);
  bool done;
  EXPECT_EQ(cuda.queryEvent(event, done), status::launchFailure);
  EXPECT_EQ(tryRun(one, [] {}), status::launchFailure);
  // Other devices still work.
  ASSERT_CUDA(cuda.selectDevice(1));
  CudaStream two = stream();
  run(two, [&] { ++count; });
  ASSERT_CUDA(cuda.synchronizeStream(two));
  EXPECT_EQ(count, 3);
  ASSERT_CUDA(cuda.selectDevice(0));
}

} // namespace

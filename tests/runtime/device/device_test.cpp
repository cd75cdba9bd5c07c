// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The conformance suite for memory, streams, events and sections: what the
// runtime and a program require of any device. It goes through a rank with one
// layout and the C ABI, as a program does.
#include "runtime/core/rank.h"
#include "tests/runtime/device/device_backends.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

class Devices : public DeviceTest {};

// As Device::allocate documents.
TEST_P(Devices, memoryIsAligned) {
  auto device = make({});
  for (size_t bytes : {size_t(1), size_t(100), (size_t(1) << 20) + 1}) {
    void *memory = device->allocate(bytes);
    ASSERT_TRUE(memory);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) %
                  (bytes >= size_t(1) << 20 ? 4096 : 64),
              0u);
    device->release(memory, bytes);
  }
}

// More than one piece of a copy, and an odd length.
TEST_P(Devices, whatIsUploadedComesBack) {
  auto device = make({});
  std::string sent((size_t(9) << 20) + 3, 'x'), got = sent;
  for (size_t i = 0; i < sent.size(); ++i)
    sent[i] = char(i * 7);
  void *memory = device->allocate(sent.size());
  ASSERT_TRUE(memory);
  device->upload(memory, sent.data(), sent.size());
  device->download(got.data(), memory, sent.size());
  EXPECT_TRUE(got == sent);
  device->zero(memory, sent.size());
  device->download(got.data(), memory, sent.size());
  EXPECT_TRUE(got == std::string(sent.size(), '\0'));
  device->release(memory, sent.size());
}

// A random program over the three streams. Each call waits for the one before
// it, by an event. A gather copies the masters to a place; the compute stream
// fills a place with one bits or accumulates it; a reduction writes a place to
// the gradient shard.
constexpr int64_t elements = 96, places = 3, calls = 60;

struct Program {
  struct Step {
    int kind, place;
  };
  std::vector<Step> steps;
  std::vector<void *> at; // the places
};
Program program;

void enqueue(fsdpc_rank *rank) {
  const int32_t layout = 0;
  int before = -1;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    auto [kind, place] = program.steps[i];
    void *memory = program.at[size_t(place)];
    const int streams[] = {FSDPC_STREAM_GATHER, FSDPC_STREAM_COMPUTE,
                           FSDPC_STREAM_COMPUTE, FSDPC_STREAM_REDUCE};
    if (before >= 0)
      fsdpc_event_wait(rank, streams[kind], before);
    if (kind == 0)
      fsdpc_all_gather(rank, 1, &layout, &memory);
    else if (kind == 1)
      fsdpc_poison(rank, memory, elements * 4);
    else if (kind == 2)
      fsdpc_accumulate(rank, layout, memory);
    else
      fsdpc_reduce_scatter(rank, 1, &layout, &memory);
    before = int(i % 4);
    fsdpc_event_record(rank, streams[kind], before);
  }
}

// Runs several times, so that a device that captures a section also replays it;
// on both slots, and for both kinds of microbatch.
TEST_P(Devices, eventsOrderStreamsInEverySection) {
  Manifest manifest;
  manifest.events = 4;
  manifest.computeDtype = manifest.reduceDtype = "f32";
  Layout layout;
  layout.name = layout.unit = "only";
  layout.elements = elements;
  layout.gradientWhole = true;
  Member member;
  member.name = "member";
  member.shape = {elements};
  member.elements = elements;
  layout.members = {member};
  manifest.layouts = {layout};

  auto jobs = makeLocalJobs(1, 0);
  fsdpc_program none = {};
  DeviceOptions options;
  options.threads = GetParam().threads;
  auto device = makeDevice(manifest, none, *jobs[0], options);
  ASSERT_TRUE(device) << device.error().message;
  fsdpc_rank rank(manifest, none, *jobs[0], std::move(*device));
  manifest.arenaBytes = places * 4096;
  MemoryPlan plan = planMemory(manifest, 1, 1, 1, 0, 0);
  Status allocated = rank.allocate(plan);
  ASSERT_TRUE(allocated) << allocated.error().message;
  std::vector<float> masters(elements);
  std::iota(masters.begin(), masters.end(), 1.0f);
  rank.device->upload(rank.layouts[0].masterShard, masters.data(),
                      elements * 4);
  rank.device->zero(rank.arena, size_t(manifest.arenaBytes));
  ASSERT_TRUE(rank.device->gatherWholes(rank));
  program = {};
  for (int64_t i = 0; i < places; ++i)
    program.at.push_back(rank.arena + i * 4096);
  std::mt19937 random(3);
  for (int64_t i = 0; i < calls; ++i)
    program.steps.push_back({int(random() % 4), int(random() % places)});

  // The expected first elements, in the program's order.
  float place[places] = {}, gradient = 0;
  for (int run = 0; run < 12; ++run) {
    rank.microbatch = run / 2 % 2;
    rank.slot = run % 2;
    bool first = rank.microbatch == 0;
    Section section = {false, rank.slot, first, rank.microbatch, run / 4};
    rank.device->enter(rank, section, enqueue);
    rank.device->synchronize();
    for (auto [kind, at] : program.steps)
      if (kind == 0)
        place[at] = 1;
      else if (kind == 1)
        place[at] = NAN;
      else
        gradient = first ? place[at] : gradient + place[at];
    float got[places], sum;
    for (int64_t i = 0; i < places; ++i)
      rank.device->download(&got[i], program.at[size_t(i)], 4);
    rank.device->download(&sum, rank.layouts[0].gradientShard, 4);
    EXPECT_EQ(memcmp(&sum, &gradient, 4) == 0 ||
                  (std::isnan(sum) && std::isnan(gradient)),
              true)
        << "run " << run << ": " << sum << ", not " << gradient;
    for (int64_t i = 0; i < places; ++i)
      EXPECT_EQ(std::isnan(got[i]), std::isnan(place[i])) << "run " << run;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Devices, ::testing::ValuesIn(backends()));

} // namespace

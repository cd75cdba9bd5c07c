// Collectives of GPUs. Every kind is compared with plain sums, with and without
// capture.
#include "tests/runtime/device_collectives.h"

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

class DeviceCollectives
    : public ::testing::TestWithParam<std::tuple<Kind, int>> {
protected:
  Kind kind = std::get<0>(GetParam());
  int ranks = std::get<1>(GetParam());
};

// Groups of every size that divides the ranks; each gathers its own shards.
TEST_P(DeviceCollectives, gatherInGroups) {
  onRanks(ranks, kind, [&](Rank &own) {
    Collectives &channel = *own.channels[gatherChannel];
    constexpr size_t bytes = 4096;
    auto value = [](int rank, size_t i) { return char(rank * 7 + int(i)); };
    for (int group = 1; group <= ranks; ++group) {
      if (ranks % group)
        continue;
      std::memset(own.whole, 0x55, bytes * size_t(ranks));
      auto *from = reinterpret_cast<char *>(own.shard);
      for (size_t i = 0; i < bytes; ++i)
        from[i] = value(own.job.rank, i);
      channel.announce("gather_secondary", "h.0");
      channel.gatherInGroup(from, own.whole, bytes, group);
      own.synchronize(gatherChannel);
      int first = own.job.rank / group * group;
      for (size_t i = 0; i < bytes * size_t(ranks); ++i) {
        int member = int(i / bytes);
        EXPECT_EQ(own.whole[i], member < group
                                    ? value(first + member, i % bytes)
                                    : char(0x55))
            << i << " in groups of " << group;
      }
      own.job.channel[controlChannel]->barrier();
    }
  });
}

// Small, page-sized and large shards, in place and not.
TEST_P(DeviceCollectives, gatherEveryShard) {
  onRanks(ranks, kind, [&](Rank &own) {
    Collectives &channel = *own.channels[gatherChannel];
    for (size_t bytes : {size_t(4), size_t(4096), size_t(200000)})
      for (bool inPlace : {false, true}) {
        char *place = own.whole + size_t(own.job.rank) * bytes;
        char *from = inPlace ? place : reinterpret_cast<char *>(own.shard);
        std::memset(own.whole, 0x55, bytes * size_t(ranks));
        for (size_t i = 0; i < bytes; ++i)
          from[i] = char(i * 31 + size_t(own.job.rank) * 7 + i / 4096);
        channel.announce("all_gather", "h.0");
        channel.allGather(from, own.whole, bytes);
        // The source may be overwritten as soon as the stream gets there.
        if (!inPlace)
          expectOk(own.api.fill(from, 0x77, bytes, own.streams[1]));
        own.synchronize(gatherChannel);
        for (size_t i = 0; i < bytes * size_t(ranks); ++i)
          EXPECT_EQ(own.whole[i],
                    char(i % bytes * 31 + i / bytes * 7 + i % bytes / 4096))
              << i;
        own.job.channel[controlChannel]->barrier();
      }
  });
}

// Exact in rank order, except with NCCL's own sums.
TEST_P(DeviceCollectives, reduceInRankOrder) {
  onRanks(ranks, kind, [&](Rank &own) {
    Collectives &channel = *own.channels[reduceChannel];
    for (int64_t elements : {int64_t(32), most - 32})
      for (WireType type : {WireType::f32, WireType::bf16})
        for (bool add : {false, true}) {
          auto at = [&](int rank, int64_t i) {
            float value = valueOf(rank, i);
            return type == WireType::f32 ? value
                                         : widen(narrow<BFloat16>(value));
          };
          int64_t all = elements * ranks, first = own.job.rank * elements;
          for (int64_t i = 0; i < all; ++i)
            if (type == WireType::f32)
              reinterpret_cast<float *>(own.whole)[i] = at(own.job.rank, i);
            else
              reinterpret_cast<BFloat16 *>(own.whole)[i] =
                  narrow<BFloat16>(valueOf(own.job.rank, i));
          for (int64_t i = 0; i < elements; ++i)
            own.shard[i] = valueOf(99, i);
          channel.announce("reduce_scatter", "h.1");
          channel.reduceScatter({own.whole, type, elements, own.shard, add});
          expectOk(
              own.api.fill(own.whole, 0x77, size_t(all) * 2, own.streams[2]));
          own.synchronize(reduceChannel);
          int64_t wrong = 0;
          for (int64_t i = 0; i < elements; ++i) {
            float sum = add ? valueOf(99, i) : 0, largest = std::abs(sum);
            for (int rank = 0; rank < ranks; ++rank) {
              float value = at(rank, first + i);
              sum = rank || add ? sum + value : value;
              largest += std::abs(value);
            }
            // NCCL sums in an order of its own, and in the type it is given.
            float unit = type == WireType::f32 ? 1e-6f : 2e-2f;
            float allowed = kind == Kind::nccl ? unit * largest : 0;
            wrong += !(std::abs(own.shard[i] - sum) <= allowed);
          }
          EXPECT_EQ(wrong, 0) << elements << " elements";
          own.job.channel[controlChannel]->barrier();
        }
  });
}

// An f32 gradient whose result is written inside it.
TEST_P(DeviceCollectives, reduceInPlace) {
  onRanks(ranks, kind, [&](Rank &own) {
    auto *values = reinterpret_cast<float *>(own.whole);
    int64_t elements = 1024;
    for (int64_t i = 0; i < elements * ranks; ++i)
      values[i] = float(i + own.job.rank); // exact in every order
    float *shard = values + own.job.rank * elements;
    own.channels[reduceChannel]->reduceScatter(
        {values, WireType::f32, elements, shard, false});
    own.synchronize(reduceChannel);
    int64_t sumOfRanks = int64_t(ranks) * (ranks - 1) / 2;
    for (int64_t i = 0; i < elements; ++i)
      EXPECT_EQ(shard[i],
                float((own.job.rank * elements + i) * ranks + sumOfRanks));
  });
}

// Norms have the same bits on every rank, and those of the host.
TEST_P(DeviceCollectives, sumDoublesInRankOrder) {
  onRanks(ranks, kind, [&](Rank &own) {
    auto *values = reinterpret_cast<double *>(own.whole);
    int count = 1000;
    std::vector<double> expected(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i)
      values[i] = expected[size_t(i)] = double(valueOf(own.job.rank, i)) / 3;
    own.channels[reduceChannel]->allReduce(values, count);
    own.synchronize(reduceChannel);
    own.job.channel[controlChannel]->allReduce(expected.data(), count);
    for (int i = 0; i < count; ++i)
      EXPECT_EQ(values[i], expected[size_t(i)]) << i;
  });
}

// A replayed graph does the same as the captured calls.
TEST_P(DeviceCollectives, canBeCaptured) {
  onRanks(ranks, kind, [&](Rank &own) {
    Collectives &channel = *own.channels[reduceChannel];
    if (!channel.canCapture())
      return;
    auto *values = reinterpret_cast<float *>(own.whole);
    CudaGraph graph = nullptr;
    CudaStream stream = own.streams[2];
    expectOk(own.api.beginCapture(stream));
    channel.announce("reduce_scatter", "h.0");
    channel.reduceScatter({values, WireType::f32, 64, own.shard, true});
    expectOk(own.api.endCapture(stream, graph));
    for (int64_t i = 0; i < 64; ++i)
      own.shard[i] = 0;
    for (int64_t i = 0; i < 64 * ranks; ++i)
      values[i] = 1;
    for (int replay = 1; replay <= 3; ++replay) {
      channel.beginSection(replay);
      expectOk(own.api.launchGraph(graph, stream));
      own.synchronize(reduceChannel);
      for (int64_t i = 0; i < 64; ++i)
        EXPECT_EQ(own.shard[i], float(replay * ranks));
    }
    expectOk(own.api.destroyGraph(graph));
  });
}

// A bf16 gradient travels as bf16 if the sum widens it.
TEST_P(DeviceCollectives, sayWhatTravels) {
  onRanks(ranks, kind, [&](Rank &own) {
    Collectives &channel = *own.channels[reduceChannel];
    auto travels = [&](WireType gradient, WireType wire) {
      return channel.travels(gradient, wire);
    };
    EXPECT_EQ(travels(WireType::f32, WireType::bf16), WireType::bf16);
    EXPECT_EQ(travels(WireType::f32, WireType::f32), WireType::f32);
    EXPECT_EQ(travels(WireType::bf16, WireType::bf16), WireType::bf16);
    EXPECT_EQ(travels(WireType::bf16, WireType::f32),
              kind == Kind::nccl ? WireType::f32 : WireType::bf16);
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceCollectives,
                         ::testing::ValuesIn(kindsAndRanks()));

} // namespace

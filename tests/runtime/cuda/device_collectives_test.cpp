// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives of GPUs. Every kind is compared with plain sums, with and without
// capture.
#include "tests/runtime/cuda/device_collectives.h"

#include "runtime/cuda/kernels/elements.h"
#include "runtime/cuda/sent_bytes.h"
#include "runtime/numeric/blocks.h"

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

// Calls body for groups of every size that divides the ranks.
void forEachGroup(int ranks, const std::function<void(int)> &body) {
  for (int group = 1; group <= ranks; ++group)
    if (ranks % group == 0)
      body(group);
}

// Each group gathers its own shards.
TEST_P(DeviceCollectives, gatherInGroups) {
  forEachGroup(ranks, [&](int group) {
    onRanks(
        ranks, kind,
        [&](Rank &own) {
          Collectives &channel = *own.channels[gatherChannel];
          constexpr size_t bytes = 4096;
          auto value = [](int rank, size_t i) {
            return char(rank * 7 + int(i));
          };
          std::memset(own.whole, 0x55, bytes * size_t(ranks));
          auto *from = reinterpret_cast<char *>(own.shard);
          for (size_t i = 0; i < bytes; ++i)
            from[i] = value(own.job.rank, i);
          channel.announce("gather_secondary", "h.0");
          channel.gatherInGroup(from, own.whole, bytes);
          own.synchronize(gatherChannel);
          int first = own.job.rank / group * group;
          for (size_t i = 0; i < bytes * size_t(ranks); ++i) {
            int member = int(i / bytes);
            EXPECT_EQ(own.whole[i], member < group
                                        ? value(first + member, i % bytes)
                                        : char(0x55))
                << i << " in groups of " << group;
          }
        },
        group);
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

// Sets the elements of this rank's gradient, each to its rank's value.
void fill(Rank &own, WireType type, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i)
    store(own.whole, type, i, valueOf(own.job.rank, i));
}

// Exact in rank order, except with NCCL's own sums.
TEST_P(DeviceCollectives, reduceInRankOrder) {
  onRanks(ranks, kind, [&](Rank &own) {
    Collectives &channel = *own.channels[reduceChannel];
    for (int64_t elements : {int64_t(32), most - 32})
      for (WireType type : {WireType::f32, WireType::bf16, WireType::f16})
        for (bool add : {false, true}) {
          int64_t all = elements * ranks, first = own.job.rank * elements;
          fill(own, type, all);
          for (int64_t i = 0; i < elements; ++i)
            own.shard[i] = valueOf(99, i);
          channel.announce("reduce_scatter", "h.1");
          channel.reduceScatter({own.whole, type, elements, own.shard, add});
          expectOk(
              own.api.fill(own.whole, 0x77, size_t(all) * 2, own.streams[2]));
          own.synchronize(reduceChannel);
          auto at = [&](int rank, int64_t i) {
            return valueOf(rank, first + i);
          };
          EXPECT_EQ(
              (SumCheck{kind, ranks, type, add, at}.wrong(own.shard, elements)),
              0)
              << elements << " elements";
          own.job.channel[controlChannel]->barrier();
        }
  });
}

// A member's part is summed over all ranks, with the same bits in each group:
// replicas must not drift apart.
void reduceInGroupsOf(Rank &own, Kind kind, int ranks, int group) {
  Communicator &control = *own.job.channel[controlChannel];
  int64_t elements = most - 32, first = own.job.rank % group * elements;
  size_t bytes = size_t(elements) * sizeof(float);
  std::vector<float> all(size_t(elements * ranks));
  for (WireType type : {WireType::f32, WireType::bf16})
    for (bool add : {false, true}) {
      fill(own, type, elements * group);
      for (int64_t i = 0; i < elements; ++i)
        own.shard[i] = valueOf(99, i);
      own.channels[reduceChannel]->announce("reduce_scatter", "h.1");
      own.channels[reduceChannel]->reduceScatter(
          {own.whole, type, elements, own.shard, add, /*inGroups=*/true});
      own.synchronize(reduceChannel);
      auto at = [&](int rank, int64_t i) { return valueOf(rank, first + i); };
      EXPECT_EQ(
          (SumCheck{kind, ranks, type, add, at}.wrong(own.shard, elements)), 0)
          << "groups of " << group;
      control.allGather(own.shard, all.data(), bytes);
      EXPECT_EQ(memcmp(own.shard, all.data() + first, bytes), 0)
          << "groups of " << group;
    }
}

TEST_P(DeviceCollectives, reduceInGroups) {
  forEachGroup(ranks, [&](int group) {
    onRanks(
        ranks, kind,
        [&](Rank &own) { reduceInGroupsOf(own, kind, ranks, group); }, group);
  });
}

// Gradients of several sizes, of which the last rank owns none. Their runs are
// longer than the memory in which ranks exchange them.
TEST_P(DeviceCollectives, reduceToOwners) {
  onRanks(ranks, kind, [&](Rank &own) {
    for (WireType type : {WireType::f32, WireType::bf16})
      for (bool add : {false, true}) {
        std::vector<OwnedGradient> list;
        int64_t first = 0;
        for (int64_t elements : {512, 3, 3001, 20}) {
          int owner = int(list.size()) % std::max(ranks - 1, 1);
          list.push_back({own.whole + size_t(first) * elementBytes(type), type,
                          elements, owner,
                          owner == own.job.rank ? own.shard + first : nullptr});
          first += (elements + 31) / 32 * 32;
        }
        fill(own, type, first);
        for (int64_t i = 0; i < first; ++i)
          own.shard[i] = valueOf(99, i);
        own.channels[reduceChannel]->announce("reduce_scatter", "h.1");
        own.channels[reduceChannel]->reduceToOwners(list, add);
        own.synchronize(reduceChannel);
        for (const OwnedGradient &part : list) {
          if (part.owner != own.job.rank)
            continue;
          int64_t begin = part.sum - own.shard;
          SumCheck sums{
              kind,
              ranks,
              type,
              add,
              [&](int rank, int64_t i) { return valueOf(rank, begin + i); },
              [&](int64_t i) { return valueOf(99, begin + i); }};
          EXPECT_EQ(sums.wrong(part.sum, part.elements), 0)
              << part.elements << " elements";
        }
        own.job.channel[controlChannel]->barrier();
      }
  });
}

// Each owner's values reach all ranks.
TEST_P(DeviceCollectives, shareOwned) {
  onRanks(ranks, kind, [&](Rank &own) {
    std::vector<OwnedValues> list;
    char *at = own.whole;
    for (size_t bytes : {4000u, 12u, 70000u}) {
      int owner = int(list.size()) % ranks;
      list.push_back({at, bytes, owner});
      std::memset(at, owner == own.job.rank ? 17 + owner : 0x55, bytes);
      at += (bytes + 63) / 64 * 64;
    }
    own.channels[gatherChannel]->announce("gather_parameters", "");
    own.channels[gatherChannel]->shareOwned(list);
    own.synchronize(gatherChannel);
    for (const OwnedValues &part : list)
      for (size_t i = 0; i < part.bytes; ++i)
        EXPECT_EQ(static_cast<char *>(part.values)[i], char(17 + part.owner))
            << i;
  });
}

// Every rank sends each other one two messages of different lengths, and the
// last rank sends nothing.
TEST_P(DeviceCollectives, transfer) {
  onRanks(ranks, kind, [&](Rank &own) {
    constexpr size_t lengths[] = {12, 5000};
    auto value = [](int from, int to, int message) {
      return char(1 + from * 16 + to * 2 + message);
    };
    std::vector<Outgoing> sends;
    std::vector<Incoming> receives;
    int self = own.job.rank, last = ranks - 1;
    char *out = own.whole, *in = own.whole + 8192 * ranks;
    for (int message = 0; message < 2; ++message)
      for (int peer = 0; peer < ranks; ++peer) {
        size_t bytes = lengths[message], room = (bytes + 63) / 64 * 64;
        if (peer != self && self != last) {
          std::memset(out, value(self, peer, message), bytes);
          sends.push_back({peer, out, bytes});
          out += room;
        }
        if (peer != self && peer != last) {
          receives.push_back({peer, in, bytes});
          in += room;
        }
      }
    own.channels[reduceChannel]->announce("move_matrices", "h.0");
    own.channels[reduceChannel]->transfer(sends, receives);
    own.synchronize(reduceChannel);
    for (const Incoming &got : receives)
      for (size_t i = 0; i < got.bytes; ++i)
        ASSERT_EQ(static_cast<char *>(got.data)[i],
                  value(got.peer, self, got.bytes == lengths[1]))
            << i << " from " << got.peer;
  });
}

// Blocks are summed in rank order, whatever the order of NCCL's own sums is.
TEST_P(DeviceCollectives, reduceBlocksInRankOrder) {
  onRanks(ranks, kind, [&](Rank &own) {
    constexpr int64_t count = 5, elements = count * blockElements;
    for (BlockType type : {BlockType::I8, BlockType::F8E4M3, BlockType::I4})
      for (bool add : {false, true}) {
        // The values that a rank sends, which all know.
        auto sentBy = [&](int rank, Blocks blocks) {
          std::vector<float> values(size_t(elements * ranks));
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = valueOf(rank, int64_t(i));
          toBlocks(values.data(), WireType::f32, int64_t(values.size()), blocks,
                   count * ranks);
        };
        sentBy(own.job.rank, {own.whole, type});
        std::vector<float> sum(elements), wide(elements);
        for (int64_t i = 0; i < elements; ++i)
          sum[size_t(i)] = own.shard[i] = valueOf(99, i);
        own.channels[reduceChannel]->announce("reduce_scatter", "h.1");
        DeviceReduction reduction;
        reduction.whole = own.whole, reduction.blocks = type;
        reduction.shardElements = elements, reduction.shard = own.shard;
        reduction.add = add;
        own.channels[reduceChannel]->reduceScatter(reduction);
        own.synchronize(reduceChannel);
        std::vector<char> other(size_t(count * ranks * blockBytes(type)));
        for (int rank = 0; rank < ranks; ++rank) {
          Blocks blocks{other.data(), type};
          sentBy(rank, blocks);
          fromBlocks(blocks.from(own.job.rank * count), elements, WireType::f32,
                     wide.data());
          for (size_t i = 0; i < sum.size(); ++i)
            sum[i] = rank == 0 && !add ? wide[i] : sum[i] + wide[i];
        }
        EXPECT_EQ(memcmp(own.shard, sum.data(), sum.size() * sizeof(float)), 0)
            << "blocks of type " << int(type);
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

// Sums have the same bits on every rank, and those of the host: of a norm, and
// of statistics of more channels than the scratch memory has room for at once.
TEST_P(DeviceCollectives, sumDoublesInRankOrder) {
  onRanks(ranks, kind, [&](Rank &own) {
    auto *values = reinterpret_cast<double *>(own.whole);
    for (int count : {1000, 200000}) {
      std::vector<double> expected(static_cast<size_t>(count));
      for (int i = 0; i < count; ++i)
        values[i] = expected[size_t(i)] = double(valueOf(own.job.rank, i)) / 3;
      own.channels[reduceChannel]->allReduce(values, count);
      own.synchronize(reduceChannel);
      own.job.channel[controlChannel]->allReduce(expected.data(), count);
      int64_t wrong = 0;
      for (int i = 0; i < count; ++i)
        wrong += values[i] != expected[size_t(i)];
      EXPECT_EQ(wrong, 0) << count;
    }
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

// A run that has gone back to a checkpoint starts again.
TEST(SentBytes, countAStepThatRunsAgainOnce) {
  SentCounts counts;
  Section section;
  section.step = 3;
  counts.start({1});
  counts.add(section, {6});
  counts.add(section, {6}); // replayed
  EXPECT_EQ(counts.of(3), SentBytes{10});
  counts.start({8});
  counts.add(section, {8});
  EXPECT_EQ(counts.of(3), SentBytes{5});
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceCollectives,
                         ::testing::ValuesIn(kindsAndRanks()));

} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The collectives whose bits every backend must agree on. Each rank runs the
// cases on its job and gets all results as one string of bytes, so that two
// backends are compared by comparing strings.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/comm/groups.h"
#include "runtime/numeric/bfloat16.h"

#include <cmath>
#include <cstring>
#include <thread>

namespace fsdpc::testing {

using namespace runtime;

/// Deterministic values whose sums depend on the order of addition.
inline float valueOf(int rank, int64_t element) {
  uint64_t x = (uint64_t(rank) + 1) * 0x9e3779b97f4a7c15u +
               uint64_t(element) * 0xbf58476d1ce4e5b9u;
  x ^= x >> 31;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 29;
  float unit = float(int64_t(x >> 40) - (1 << 23)) / float(1 << 23);
  return unit * std::ldexp(1.0f, int(x & 15) - 8);
}

struct ReduceCase {
  int64_t elements;
  int64_t shardElements; ///< 0: as in a layout of that length
  WireType type, wire;
  bool add;
};

/// One element; an odd number; several pieces of staging; shards that are only
/// padding.
inline std::vector<ReduceCase> reduceCases(
    const std::vector<int64_t> &counts = {1, 31, 1000, 70001, 1200001}) {
  std::vector<ReduceCase> cases;
  for (int64_t elements : counts)
    for (WireType type : {WireType::f32, WireType::bf16})
      for (WireType wire : {WireType::f32, WireType::bf16})
        cases.push_back({elements, 0, type, wire, elements % 2 == 0});
  cases.push_back({64, 64, WireType::f32, WireType::f32, true});
  return cases;
}

/// A multiple of 32 elements, as layouts are cut.
inline int64_t shardOf(const ReduceCase &c, int ranks) {
  if (c.shardElements)
    return c.shardElements;
  return ((c.elements + ranks - 1) / ranks + 31) / 32 * 32;
}

inline std::vector<char> gradientOf(const ReduceCase &c, int rank) {
  size_t width = elementBytes(c.type);
  std::vector<char> bytes(c.elements * width);
  for (int64_t i = 0; i < c.elements; ++i) {
    float value = valueOf(rank, i);
    if (c.type == WireType::f32) {
      memcpy(&bytes[i * 4], &value, 4);
    } else {
      BFloat16 narrowed = narrow<BFloat16>(value);
      memcpy(&bytes[i * 2], &narrowed, 2);
    }
  }
  return bytes;
}

/// One piece of the pipeline over groups, and up to three.
inline std::vector<ReduceCase> hybridCases() {
  std::vector<ReduceCase> cases = reduceCases({1, 1000});
  cases.push_back({150001, 0, WireType::f32, WireType::f32, true});
  cases.push_back({150001, 0, WireType::bf16, WireType::f32, false});
  return cases;
}

/// The reductions of hybridCases() over groups of `groupRanks` ranks, as the
/// bytes of this rank's shards one after the other.
inline std::string runHybridCases(Communicator &whole, int groupRanks) {
  std::string results;
  auto made = ShardGroups::make(whole, groupRanks);
  ShardGroups &groups = **made;
  for (const ReduceCase &c : hybridCases()) {
    std::vector<char> gradient = gradientOf(c, whole.rank());
    std::vector<float> shard(size_t(shardOf(c, groupRanks)));
    for (size_t i = 0; i < shard.size(); ++i)
      shard[i] = c.add ? valueOf(99, int64_t(i)) : NAN;
    groups.reduceScatter({gradient.data(), c.type, c.wire, c.elements,
                          int64_t(shard.size()), shard.data(), c.add});
    results.append(reinterpret_cast<const char *>(shard.data()),
                   shard.size() * 4);
  }
  return results;
}

/// Messages around a ring, of sizes from none to many pieces, in both
/// directions at once.
inline std::string runRing(Communicator &ring) {
  std::string results;
  int ranks = ring.size(), self = ring.rank();
  int next = (self + 1) % ranks, previous = (self + ranks - 1) % ranks;
  for (size_t bytes : {0, 1, 4097, 3000001}) {
    std::string sent(bytes, char('a' + self)),
        back(bytes / 2, char('A' + self));
    std::string got(bytes, '?'), gotBack(bytes / 2, '?');
    if (ranks > 2) {
      std::vector<Outgoing> sends = {{next, sent.data(), bytes},
                                     {previous, back.data(), bytes / 2}};
      std::vector<Incoming> receives = {{next, gotBack.data(), bytes / 2},
                                        {previous, got.data(), bytes}};
      ring.transfer(sends, receives);
    } else if (ranks == 2) {
      Outgoing send = {next, sent.data(), bytes};
      Incoming receive = {next, got.data(), bytes};
      ring.transfer({&send, 1}, {&receive, 1});
    }
    results += got + gotBack;
  }
  return results;
}

/// The groups of a channel: rings in groups of every second rank, whose
/// collectives alternate with the channel's own, and hybrid reductions.
inline std::string runGroupCases(Job &job) {
  Communicator &whole = *job.channel[reduceChannel];
  std::string results = runRing(whole);
  auto alternate = whole.split(job.rank % 2);
  double sum[2] = {job.rank + 0.5, 1};
  for (Communicator *communicator : {&*alternate, &whole, &*alternate}) {
    results += runRing(*communicator);
    std::vector<int> ranks(size_t(communicator->size()));
    communicator->allGather(&job.rank, ranks.data(), sizeof job.rank);
    communicator->allReduce(sum, 2);
    communicator->barrier();
    results.append(reinterpret_cast<char *>(ranks.data()), 4 * ranks.size());
    results.append(reinterpret_cast<char *>(sum), sizeof sum);
  }
  for (int groupRanks = 1; groupRanks <= job.size; ++groupRanks)
    if (job.size % groupRanks == 0)
      results += runHybridCases(whole, groupRanks);
  return results;
}

/// Lists of what ranks own: of one element, of several pieces, of both types,
/// none of some ranks, and all of the last one.
inline std::vector<std::vector<ReduceCase>> ownedLists() {
  std::vector<std::vector<ReduceCase>> lists = {{}};
  for (const ReduceCase &c : reduceCases({1, 31, 1000, 200001}))
    if (c.wire == WireType::f32) {
      lists.push_back({c});
      lists[0].push_back(c);
    }
  return lists;
}
inline int ownerOf(size_t list, size_t index, int ranks) {
  return int(list ? size_t(ranks) - 1 : index * index % size_t(ranks));
}

/// Sums of ownedLists() on their owners, which then share them: the bytes that
/// this rank has afterwards.
inline std::string runOwnedCases(Job &job) {
  std::string results;
  auto lists = ownedLists();
  for (WireType wire : {WireType::f32, WireType::bf16})
    for (bool add : {false, true})
      for (size_t list = 0; list < lists.size(); ++list) {
        std::vector<std::vector<char>> gradients;
        std::vector<std::vector<float>> sums;
        std::vector<OwnedGradient> parts;
        std::vector<OwnedValues> values;
        for (const ReduceCase &c : lists[list]) {
          int owner = ownerOf(list, parts.size(), job.size);
          gradients.push_back(gradientOf(c, job.rank));
          sums.emplace_back(size_t(c.elements), NAN);
          for (int64_t i = 0; add && i < c.elements; ++i)
            sums.back()[size_t(i)] = valueOf(99, i);
          parts.push_back({gradients.back().data(), c.type, c.elements, owner,
                           owner == job.rank ? sums.back().data() : nullptr});
          values.push_back({sums.back().data(), sums.back().size() * 4, owner});
        }
        job.channel[reduceChannel]->reduceToOwners(parts, wire, add);
        job.channel[gatherChannel]->shareOwned(values);
        for (const std::vector<float> &sum : sums)
          results.append(reinterpret_cast<const char *>(sum.data()),
                         sum.size() * 4);
      }
  return results;
}

/// Reductions, gathers with the piece in place and elsewhere, sums of doubles,
/// and a barrier.
inline std::string runCases(Job &job) {
  std::string results;
  auto append = [&](const void *data, size_t bytes) {
    results.append(static_cast<const char *>(data), bytes);
  };
  Communicator &reduce = *job.channel[reduceChannel];
  for (const ReduceCase &c : reduceCases()) {
    std::vector<char> gradient = gradientOf(c, job.rank);
    std::vector<float> shard(shardOf(c, job.size));
    for (size_t i = 0; i < shard.size(); ++i)
      shard[i] = c.add ? valueOf(99, i) : NAN;
    reduce.reduceScatter({gradient.data(), c.type, c.wire, c.elements,
                          int64_t(shard.size()), shard.data(), c.add});
    append(shard.data(), shard.size() * 4);
  }
  Communicator &gather = *job.channel[gatherChannel];
  for (size_t bytes : {4, 68, 4096, 3000000})
    for (bool inPlace : {false, true}) {
      std::string whole(bytes * job.size, '?'), shard(bytes, 0);
      for (size_t i = 0; i < bytes; ++i)
        shard[i] = char(i * 31 + job.rank * 7 + i / 4096);
      char *own = &whole[job.rank * bytes];
      if (inPlace)
        memcpy(own, shard.data(), bytes);
      gather.allGather(inPlace ? own : shard.data(), whole.data(), bytes);
      append(whole.data(), whole.size());
    }
  for (Channel channel : {reduceChannel, controlChannel})
    for (int count : {1, 7, 20000}) {
      std::vector<double> values(count);
      for (int i = 0; i < count; ++i)
        values[i] = double(valueOf(job.rank, i)) / 3;
      job.channel[channel]->allReduce(values.data(), count);
      append(values.data(), count * sizeof(double));
    }
  job.channel[controlChannel]->barrier();
  return results + runOwnedCases(job);
}

/// Runs each job on a thread of its own. Returns the results by rank.
inline std::vector<std::string>
runJobs(std::vector<std::unique_ptr<Job>> &jobs,
        const std::function<std::string(Job &)> &run = runCases) {
  std::vector<std::string> results(jobs.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < jobs.size(); ++rank)
    threads.emplace_back([&, rank] { results[rank] = run(*jobs[rank]); });
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

} // namespace fsdpc::testing

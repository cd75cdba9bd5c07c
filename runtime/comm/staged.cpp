// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives through staging memory, piece by piece: write to every peer,
// exchange, then sum or copy the pieces that arrived. Both kinds of
// communicator share the loop of the reduce-scatter and differ in how a piece
// gets to the others.
#include "runtime/comm/staged.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/numeric/streaming.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

namespace fsdpc::runtime {

// Per piece: write a segment for every peer, trade, sum what arrived. This
// rank's own addend is read in place.
void StagedCommunicator::doReduceScatter(const ReduceScatter &part) {
  WireType sent = handedOver(part);
  size_t width = elementBytes(sent);
  // Whole cache lines, so that no two segments share one. At least one cache
  // line: Staging::of gives the reduce channel 64 bytes per rank or more.
  int64_t step = int64_t(staging.half / ranks / 64 * 64 / width);
  for (int64_t begin = 0; begin < part.shardElements; begin += step) {
    int64_t count = std::min(step, part.shardElements - begin);
    size_t segment = roundUp64(count * width);
    for (int peer = 0; peer < ranks; ++peer) {
      int64_t from = partOf(part, peer) + begin;
      if (peer != self)
        castToWire(gradientAt(part, from), part.type, sent,
                   realElements(part, from, count), outgoing(peer, segment));
    }
    trade(segment, sources.data());
    for (int peer = 0; peer < ranks; ++peer)
      addends[peer] = {sources[peer], sent};
    int64_t own = partOf(part, self) + begin;
    addends[self] = {gradientAt(part, own), part.type};
    int64_t real = realElements(part, own, count);
    sumRanks(addends.data(), ranks, part.wire, real, part.shard + begin,
             part.add, part.initial ? part.initial + begin : nullptr,
             resultBytes(part));
    sumPadding(part, begin + real, begin + count);
  }
}

WindowCommunicator::WindowCommunicator(int rank, std::vector<char *> bases,
                                       Staging staging)
    : StagedCommunicator(rank, int(bases.size()), staging),
      windows(std::move(bases)),
      meeting(reinterpret_cast<FutexBarrier *>(windows[0])) {}

void WindowCommunicator::barrier() { meeting->wait(ranks); }

char *WindowCommunicator::outgoing(int peer, size_t segment) {
  return stage(self) + peer * segment;
}

// After the barrier every segment is written. Switching halves lets the next
// piece be written while slower ranks still read this one.
void WindowCommunicator::trade(size_t segment, const void **sources) {
  barrier();
  for (int peer = 0; peer < ranks; ++peer)
    sources[peer] = stage(peer) + self * segment;
  half ^= 1;
}

// Bytes past the end of a segment are not read.
void WindowCommunicator::trade(size_t segment, std::span<const size_t>,
                               const void **sources) {
  trade(segment, sources);
}

// Each rank writes its piece to its own window, and after the barrier copies
// the others' pieces from theirs.
void WindowCommunicator::doAllGather(const void *shard, void *whole,
                                     size_t shardBytes, size_t stride) {
  const char *own = static_cast<const char *>(shard);
  char *all = static_cast<char *>(whole);
  for (size_t begin = 0; begin < shardBytes; begin += staging.gather) {
    size_t bytes = std::min(staging.gather, shardBytes - begin);
    memcpy(stage(self), own + begin, bytes);
    auto place = [&](int rank, const char *from) {
      copyResult(from, bytes, all + rank * stride + begin, ranks * shardBytes);
    };
    place(self, own + begin); // while the piece is in the cache
    barrier();
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != self)
        place(peer, stage(peer));
    half ^= 1;
  }
}

// Every rank sums all values itself, in rank order.
void WindowCommunicator::doAllReduce(double *values, int count) {
  int step = int(staging.gather / sizeof(double));
  for (int begin = 0; begin < count; begin += step) {
    int length = std::min(step, count - begin);
    memcpy(stage(self), values + begin, length * sizeof(double));
    barrier();
    for (int i = 0; i < length; ++i) {
      double sum = reinterpret_cast<double *>(stage(0))[i];
      for (int peer = 1; peer < ranks; ++peer)
        sum += reinterpret_cast<double *>(stage(peer))[i];
      values[begin + i] = sum;
    }
    half ^= 1;
  }
}

// mmap gives zero pages that cost nothing until they are touched; channels that
// only gather never touch them.
ExchangeCommunicator::ExchangeCommunicator(int rank, int ranks, Staging staging)
    : StagedCommunicator(rank, ranks, staging) {
  void *memory = mmap(nullptr, 2 * staging.half, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    fail(runError("out of memory for the staging buffer of a communicator"));
  sent = static_cast<char *>(memory);
  received = sent + staging.half;
}

ExchangeCommunicator::~ExchangeCommunicator() {
  munmap(sent, 2 * staging.half);
}

// After round k every rank has heard, directly or not, of the 2^k - 1 ranks
// before it.
void ExchangeCommunicator::barrier() {
  for (int distance = 1; distance < ranks; distance *= 2) {
    Outgoing send = {(self + distance) % ranks, nullptr, 0};
    Incoming receive = {(self + ranks - distance) % ranks, nullptr, 0};
    doTransfer({&send, 1}, {&receive, 1});
  }
}

// Every rank begins with the peer after it, so that not all send to one.
void ExchangeCommunicator::exchange(const char *from, char *to, size_t bytes) {
  sends.clear();
  receives.clear();
  for (int i = 1; i < ranks; ++i) {
    int next = (self + i) % ranks, previous = (self + ranks - i) % ranks;
    sends.push_back({next, from + size_t(next) * bytes, bytes});
    receives.push_back({previous, to + size_t(previous) * bytes, bytes});
  }
  doTransfer(sends, receives);
}

void ExchangeCommunicator::gather(const char *piece, char *whole, size_t bytes,
                                  size_t stride) {
  char *own = whole + size_t(self) * stride;
  if (own != piece)
    memcpy(own, piece, bytes);
  sends.clear();
  receives.clear();
  for (int i = 1; i < ranks; ++i) {
    int next = (self + i) % ranks, previous = (self + ranks - i) % ranks;
    sends.push_back({next, own, bytes});
    receives.push_back({previous, whole + size_t(previous) * stride, bytes});
  }
  doTransfer(sends, receives);
}

char *ExchangeCommunicator::outgoing(int peer, size_t segment) {
  return sent + peer * segment;
}

void ExchangeCommunicator::passLink(std::span<const Outgoing> messages) {
  if (!link)
    return;
  size_t bytes = 0;
  for (const Outgoing &message : messages)
    bytes += goesFar(message.peer) ? message.bytes : 0;
  link->send(bytes);
}

void ExchangeCommunicator::passLink(size_t bytes) {
  if (link)
    link->send(bytes * farRanks());
}

void ExchangeCommunicator::trade(size_t segment, const void **sources) {
  passLink(segment);
  exchange(sent, received, segment);
  for (int peer = 0; peer < ranks; ++peer)
    sources[peer] = received + peer * segment;
}

void ExchangeCommunicator::trade(size_t segment,
                                 std::span<const size_t> lengths,
                                 const void **sources) {
  sends.clear();
  receives.clear();
  for (int i = 1; i < ranks; ++i) {
    int next = (self + i) % ranks, previous = (self + ranks - i) % ranks;
    char *place = received + size_t(previous) * segment;
    sources[previous] = place;
    if (lengths[size_t(next)])
      sends.push_back(
          {next, sent + size_t(next) * segment, lengths[size_t(next)]});
    if (lengths[size_t(self)])
      receives.push_back({previous, place, lengths[size_t(self)]});
  }
  doTransfer(sends, receives);
}

void ExchangeCommunicator::doAllGather(const void *shard, void *whole,
                                       size_t shardBytes, size_t stride) {
  gatherPieces(shard, whole, shardBytes, stride);
}

void ExchangeCommunicator::gatherPieces(const void *shard, void *whole,
                                        size_t shardBytes, size_t stride) {
  const char *own = static_cast<const char *>(shard);
  char *all = static_cast<char *>(whole);
  // Pieces bound how much the library below buffers.
  for (size_t begin = 0; begin < shardBytes; begin += staging.gather) {
    size_t bytes = std::min(staging.gather, shardBytes - begin);
    passLink(bytes);
    gather(own + begin, all + begin, bytes, stride);
  }
}

// Gathers all values and sums them in rank order, since a library's all-reduce
// would choose an order of its own.
void ExchangeCommunicator::doAllReduce(double *values, int count) {
  std::vector<double> &all = summands;
  all.resize(size_t(count) * ranks);
  size_t bytes = size_t(count) * sizeof(double);
  gatherPieces(values, all.data(), bytes, bytes);
  for (int i = 0; i < count; ++i) {
    values[i] = all[i];
    for (int peer = 1; peer < ranks; ++peer)
      values[i] += all[size_t(peer) * count + i];
  }
}

} // namespace fsdpc::runtime

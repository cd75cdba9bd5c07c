// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives of ranks that are threads of this process, on one GPU. A rank's
// stream waits for the others' sources, copies or sums them where they are, and
// goes on when all ranks have done so. The threads also meet on the host,
// because an event must be recorded before another rank's stream can wait for
// it.
#include "runtime/comm/futex_barrier.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/cuda/collective_channel.h"
#include "runtime/support/concat.h"

namespace fsdpc::runtime {

namespace {

// State that the ranks of one channel share.
struct Meeting {
  // One rank's part. Only that rank writes it; the barriers of share() order
  // its writes with the reads of the others.
  struct Place {
    const void *source = nullptr; // values, or a list of the host
    CudaEvent ready = nullptr, done = nullptr;
  };
  explicit Meeting(int ranks) : places(size_t(ranks)) {}
  FutexBarrier barrier;
  std::vector<Place> places;
};
using Meetings = std::array<std::shared_ptr<Meeting>, 2>;

class PeerChannel : public CollectiveChannel {
public:
  PeerChannel(CudaApi &api, Job &job, Channel channel,
              const CollectiveResources &resources,
              std::shared_ptr<Watchdog> watchdog,
              std::shared_ptr<Meeting> meeting)
      : CollectiveChannel(api, job, channel, resources, std::move(watchdog)),
        groupRanks(resources.groups.ranks), meeting(std::move(meeting)) {
    check(api.createEvent(own().ready));
    check(api.createEvent(own().done));
  }
  ~PeerChannel() override {
    api.destroyEvent(own().ready);
    api.destroyEvent(own().done);
  }

  bool canCapture() const override { return false; }
  // A 16-bit gradient is read as it is, since the kernel widens exactly.
  // Casting it to f32 first would only cost memory traffic.
  WireType travels(WireType gradient, WireType wire) const override {
    return gradient == WireType::f32 ? wire : gradient;
  }

  void allGather(const void *shard, void *whole, size_t bytes) override {
    gather(shard, whole, bytes, size());
  }
  void gatherInGroup(const void *shard, void *whole, size_t bytes) override {
    gather(shard, whole, bytes, groupRanks);
  }

  // Each rank sums its part of all ranks' gradients, in rank order. Those with
  // the same place in their groups sum the same part.
  void reduceScatter(const DeviceReduction &reduction) override {
    Scope scope(*this);
    int part = reduction.inGroups ? rank() % groupRanks : rank();
    size_t first = size_t(part) * reduction.shardBytes();
    share(reduction.whole, [&] {
      SumRanks sum;
      sum.ranks = size();
      for (int peer = 0; peer < size(); ++peer)
        sum.parts[peer] = static_cast<const char *>(source(peer)) + first;
      launchSum(sum, reduction);
    });
  }

  // The ranks share their lists, which they keep until all have read them.
  void reduceToOwners(std::span<const OwnedGradient> gradients,
                      bool add) override {
    Scope scope(*this);
    share(gradients.data(), [&] {
      for (size_t i = 0; i < gradients.size(); ++i) {
        const OwnedGradient &own = gradients[i];
        if (own.owner != rank())
          continue;
        SumRanks sum;
        sum.ranks = size();
        for (int peer = 0; peer < size(); ++peer)
          sum.parts[peer] =
              static_cast<const OwnedGradient *>(source(peer))[i].gradient;
        launchSum(sum, {nullptr, own.type, own.elements, own.sum, add});
      }
    });
  }

  void shareOwned(std::span<const OwnedValues> values) override {
    Scope scope(*this);
    share(values.data(), [&] {
      for (size_t i = 0; i < values.size(); ++i)
        if (int owner = values[i].owner; owner != rank())
          check(api.copy(
              values[i].values,
              static_cast<const OwnedValues *>(source(owner))[i].values,
              values[i].bytes, stream));
    });
  }

  // The ranks share their lists. Message k that a rank takes from a peer is the
  // k-th one that this has for it.
  void transfer(std::span<const Outgoing> sends,
                std::span<const Incoming> receives) override {
    Scope scope(*this);
    share(&sends, [&] {
      std::vector<size_t> next(size_t(size()), 0);
      for (const Incoming &message : receives) {
        auto &list = *static_cast<const std::span<const Outgoing> *>(
            source(message.peer));
        size_t &at = next[size_t(message.peer)];
        while (list[at].peer != rank())
          ++at;
        check(api.copy(message.data, list[at++].data, message.bytes, stream));
      }
    });
  }

private:
  void sumPiece(double *values, int count) override {
    // Not in place, since other ranks may still be reading `values`.
    auto *sums = reinterpret_cast<double *>(scratch);
    share(values, [&] {
      SumDoubles sum;
      sum.ranks = size();
      sum.count = count;
      sum.values = sums;
      for (int peer = 0; peer < size(); ++peer)
        sum.parts[peer] = static_cast<const double *>(source(peer));
      launch(sum, count);
    });
    check(api.copy(values, sums, size_t(count) * sizeof(double), stream));
  }

  // The ranks of all groups meet, but each copies from its own group only.
  void gather(const void *shard, void *whole, size_t bytes, int ranks) {
    Scope scope(*this);
    int first = rank() - rank() % ranks;
    share(shard, [&] {
      for (int member = 0; member < ranks; ++member) {
        char *place = static_cast<char *>(whole) + size_t(member) * bytes;
        if (const void *from = source(first + member); place != from)
          check(api.copy(place, from, bytes, stream));
      }
    });
  }

  Meeting::Place &own() { return meeting->places[size_t(rank())]; }
  const void *source(int peer) const {
    return meeting->places[size_t(peer)].source;
  }

  // Calls `body`, which enqueues reads of all ranks' sources. When it returns,
  // later work on the stream runs after the reads of every rank.
  template <typename Body> void share(const void *source, Body &&body) {
    // Safe to overwrite: every rank has passed the second barrier of the last
    // call, after its last use of the old source.
    own().source = source;
    check(api.recordEvent(own().ready, stream));
    meeting->barrier.wait(size());
    await(&Meeting::Place::ready);
    body();
    check(api.recordEvent(own().done, stream));
    meeting->barrier.wait(size());
    await(&Meeting::Place::done);
  }

  void await(CudaEvent Meeting::Place::*event) {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank())
        check(api.waitEvent(stream, meeting->places[size_t(peer)].*event));
  }

  const int groupRanks;
  std::shared_ptr<Meeting> meeting;
};

} // namespace

// All ranks call it together, on their own threads.
Result<CollectiveChannels>
makePeerChannels(CudaApi &api, Job &job, const CollectiveResources &resources,
                 const std::shared_ptr<Watchdog> &watchdog) {
  if (job.size > mostAddends)
    return commandLineError(concat("--ranks ", job.size,
                                   ": one GPU supports at most ", mostAddends,
                                   " ranks"));
  Meetings own;
  if (job.rank == 0)
    own = {std::make_shared<Meeting>(job.size),
           std::make_shared<Meeting>(job.size)};
  // Rank 0 makes the shared state, and the others get it by its address.
  const Meetings *address = &own;
  std::vector<const Meetings *> all(size_t(job.size));
  Communicator &control = *job.channel[controlChannel];
  control.allGather(&address, all.data(), sizeof address);
  // Rank 0 keeps `own` alive until the barrier below, after which all have
  // their copy.
  Meetings meetings = *all[0];
  CollectiveChannels channels;
  for (Channel channel : {gatherChannel, reduceChannel})
    channels[channel] = std::make_unique<PeerChannel>(
        api, job, channel, resources, watchdog, std::move(meetings[channel]));
  control.barrier();
  return channels;
}

} // namespace fsdpc::runtime

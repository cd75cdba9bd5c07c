// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives over NCCL. With --deterministic, and in blocks of 8 or 4 bits,
// the ranks exchange values and sum them in rank order, and groups of ranks
// hand their sums to each other; otherwise NCCL sums in an order of its own.
#include "runtime/comm/owned.h"
#include "runtime/cuda/collective_channel.h"
#include "runtime/cuda/nccl_communicators.h"
#include "runtime/cuda/nccl_memory.h"

namespace fsdpc::runtime {

namespace {

// Elements of the pieces in which groups hand sums to each other: large beside
// a message's latency, small beside a shard, so that all groups are soon busy.
constexpr int64_t chainElements = int64_t(1) << 18;

// A gradient is given in the type in which it travels.
size_t sentSize(const OwnedGradient &part) { return bytesOf(part, part.type); }

class NcclChannel : public CollectiveChannel {
public:
  NcclChannel(CudaApi &api, Job &job, Channel channel,
              const CollectiveResources &resources,
              std::shared_ptr<Watchdog> watchdog, bool deterministic,
              const NcclCommunicators &communicators, bool windows)
      : CollectiveChannel(api, job, channel, resources, std::move(watchdog)),
        deterministic(deterministic), over(communicators),
        groupRanks(resources.groups.ranks), registrations(api),
        runs(size_t(job.size)) {
    // All collectives of a step lie in this memory. The ranks meet to register
    // windows.
    name = this->watchdog->nameOf("registration of memory", "");
    this->watchdog->markHost(channel, name, true);
    for (CudaCommunicator communicator : over.all())
      check(registrations.add(communicator, resources, windows));
    this->watchdog->markHost(channel, name, false);
  }

  bool canCapture() const override { return true; }
  WireType travels(WireType gradient, WireType wire) const override {
    // The runtime's own sum widens what it reads; NCCL sums in the type it is
    // given.
    return deterministic && gradient != WireType::f32 ? gradient : wire;
  }

  void allGather(const void *shard, void *whole, size_t bytes) override {
    Scope scope(*this);
    sentSoFar[0] += bytes * size_t(size() - 1);
    check(api.allGather(over.ranks, shard, whole, bytes, stream));
  }
  void gatherInGroup(const void *shard, void *whole, size_t bytes) override {
    Scope scope(*this);
    sentSoFar[1] += bytes * size_t(groupRanks - 1);
    check(api.allGather(over.group, shard, whole, bytes, stream));
  }

  void reduceScatter(const DeviceReduction &reduction) override {
    Scope scope(*this);
    bool across = reduction.inGroups && over.across;
    size_t others = size_t(reduction.inGroups ? groupRanks : size()) - 1;
    sentSoFar[reduction.inGroups] += others * reduction.shardBytes();
    if (deterministic || reduction.blocks != BlockType::None) {
      trade(reduction, across ? over.group : over.ranks,
            across ? groupRanks : size());
      if (across)
        return chain(reduction);
      SumRanks sum;
      sum.first = scratch;
      sum.ranks = size();
      return launchSum(sum, reduction);
    }
    // All groups end with the same sum, so one of them adds what there was.
    DeviceReduction own = reduction;
    own.add = reduction.add && !(across && groupOf(rank()) > 0);
    sumByNccl(own, across ? over.group : over.ranks);
    if (!across)
      return;
    // A sum and a copy of each value pass every group but one. The shard is a
    // part of each group's.
    size_t groups = size_t(size() / groupRanks);
    sentSoFar[2] += 2 * (groups - 1) * size_t(reduction.shardElements) *
                    sizeof(float) / groups;
    check(api.allReduce(over.across, reduction.shard,
                        size_t(reduction.shardElements), stream));
  }

  void reduceToOwners(std::span<const OwnedGradient> gradients,
                      bool add) override {
    Scope scope(*this);
    for (const OwnedGradient &part : gradients)
      if (part.owner != rank())
        sentSoFar[0] += sentSize(part);
    if (deterministic)
      tradeOwned(gradients, add);
    else
      sumOwnedByNccl(gradients, add);
  }

  void shareOwned(std::span<const OwnedValues> values) override {
    Scope scope(*this);
    check(api.groupBegin());
    for (const OwnedValues &part : values) {
      if (part.owner == rank())
        sentSoFar[0] += part.bytes * size_t(size() - 1);
      check(api.broadcast(over.ranks, part.values, part.bytes, part.owner,
                          stream));
    }
    check(api.groupEnd());
  }

  void transfer(std::span<const Outgoing> sends,
                std::span<const Incoming> receives) override {
    Scope scope(*this);
    check(api.groupBegin());
    for (const Outgoing &message : sends) {
      sentSoFar[0] += message.bytes;
      check(api.send(over.ranks, message.data, message.bytes, message.peer,
                     stream));
    }
    for (const Incoming &message : receives)
      check(api.receive(over.ranks, message.data, message.bytes, message.peer,
                        stream));
    check(api.groupEnd());
  }

private:
  // Gathers and sums in rank order, so that norms are the same bits on all
  // ranks.
  void sumPiece(double *values, int count) override {
    sentSoFar[0] += size_t(count) * sizeof(double) * size_t(size() - 1);
    check(api.allGather(over.ranks, values, scratch,
                        size_t(count) * sizeof(double), stream));
    SumDoubles sum;
    sum.first = reinterpret_cast<const double *>(scratch);
    sum.ranks = size();
    sum.count = count;
    sum.values = values;
    launch(sum, count);
  }

  int groupOf(int rank) const { return rank / groupRanks; }

  // NCCL writes straight into the shard only if that overwrites f32. Otherwise
  // its result is widened or added by a kernel.
  void sumByNccl(const DeviceReduction &reduction,
                 CudaCommunicator communicator) {
    bool direct = reduction.type == WireType::f32 && !reduction.add;
    check(api.reduceScatter(
        communicator, reduction.whole,
        direct ? static_cast<void *>(reduction.shard) : scratch,
        size_t(reduction.shardElements), reduction.type, stream));
    if (direct)
      return;
    SumRanks sum;
    sum.first = scratch;
    launchSum(sum, reduction);
  }

  // Collects the segments of a communicator's ranks for this one in scratch
  // memory, in rank order.
  void trade(const DeviceReduction &reduction, CudaCommunicator communicator,
             int ranks) {
    int self = rank() % ranks;
    size_t bytes = reduction.shardBytes();
    auto *segments = static_cast<const char *>(reduction.whole);
    size_t own = size_t(self) * bytes;
    check(api.copy(scratch + own, segments + own, bytes, stream));
    // One group, or two ranks that both send first would wait for each other.
    check(api.groupBegin());
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == self)
        continue;
      size_t at = size_t(peer) * bytes;
      check(api.send(communicator, segments + at, bytes, peer, stream));
      check(api.receive(communicator, scratch + at, bytes, peer, stream));
    }
    check(api.groupEnd());
  }

  // Sums over groups in their order, as ShardGroups does: at tick t group g
  // adds its ranks' values of piece t - g to the sums of the group before. The
  // sums are formed in the shard, whose old values only the first group needs.
  void chain(const DeviceReduction &reduction) {
    int own = groupOf(rank());
    int64_t last = size() / groupRanks - 1;
    int64_t pieces =
        (reduction.shardElements + chainElements - 1) / chainElements;
    for (int64_t tick = 0; tick < pieces + last; ++tick) {
      if (int64_t piece = tick - own; piece >= 0 && piece < pieces) {
        DeviceReduction part = pieceOf(reduction, piece);
        SumRanks sum;
        sum.first =
            scratch + piece * chainElements * elementBytes(reduction.type);
        sum.stride = reduction.shardElements;
        sum.ranks = groupRanks;
        part.add = own > 0 || reduction.add;
        launchSum(sum, part);
      }
      tradeAcross(reduction, pieces, tick);
    }
  }

  static DeviceReduction pieceOf(const DeviceReduction &reduction,
                                 int64_t piece) {
    DeviceReduction part = reduction;
    int64_t first = piece * chainElements;
    part.shard += first;
    part.shardElements =
        std::min(chainElements, reduction.shardElements - first);
    return part;
  }

  // Hands this group's sums to the next group, and those of the last group to
  // all; takes what this rank needs for its next piece, and complete sums.
  void tradeAcross(const DeviceReduction &reduction, int64_t pieces,
                   int64_t tick) {
    int own = groupOf(rank()), last = size() / groupRanks - 1;
    auto send = [&](int64_t piece, int to) {
      DeviceReduction part = pieceOf(reduction, piece);
      size_t bytes = size_t(part.shardElements) * sizeof(float);
      sentSoFar[2] += bytes;
      check(api.send(over.across, part.shard, bytes, to, stream));
    };
    auto receive = [&](int64_t piece, int from) {
      if (piece < 0 || piece >= pieces)
        return;
      DeviceReduction part = pieceOf(reduction, piece);
      check(api.receive(over.across, part.shard,
                        size_t(part.shardElements) * sizeof(float), from,
                        stream));
    };
    check(api.groupBegin());
    if (int64_t piece = tick - own; piece >= 0 && piece < pieces)
      for (int to = 0; to <= last; ++to)
        if (own == last ? to != own : to == own + 1)
          send(piece, to);
    if (own > 0)
      receive(tick - own + 1, own - 1);
    if (own < last)
      receive(tick - last, last);
    check(api.groupEnd());
  }

  // NCCL's sums of what this rank owns lie in scratch memory where a kernel has
  // to widen or add them.
  void sumOwnedByNccl(std::span<const OwnedGradient> gradients, bool add) {
    auto isDirect = [&](const OwnedGradient &part) {
      return part.type == WireType::f32 && !add;
    };
    size_t at = 0;
    check(api.groupBegin());
    for (const OwnedGradient &part : gradients) {
      void *to = nullptr;
      if (part.owner == rank()) {
        to = isDirect(part) ? static_cast<void *>(part.sum) : scratch + at;
        at += placeOf(sentSize(part));
      }
      check(api.reduce(over.ranks, part.gradient, to, size_t(part.elements),
                       part.type, part.owner, stream));
    }
    check(api.groupEnd());
    at = 0;
    for (const OwnedGradient &part : gradients) {
      if (part.owner != rank())
        continue;
      if (!isDirect(part))
        launchOwned(part, 0, size_t(part.elements), scratch + at, 0, 1, add);
      at += placeOf(sentSize(part));
    }
  }

  // Sums `count` elements of an owned gradient, of `ranks` ranks that lie
  // `stride` elements apart.
  void launchOwned(const OwnedGradient &part, size_t first, size_t count,
                   const void *values, size_t stride, int ranks, bool add) {
    SumRanks sum;
    sum.first = values;
    sum.stride = int64_t(stride);
    sum.ranks = ranks;
    launchSum(sum, {nullptr, part.type, int64_t(count), part.sum + first, add});
  }

  // Every rank sends the same range of each owner's run at once
  // (runtime/comm/owned.h), so all of them sum. The scratch memory holds the
  // values of all ranks for this one's range.
  void tradeOwned(std::span<const OwnedGradient> gradients, bool add) {
    size_t longest = measureRuns(gradients, sentSize, runs);
    size_t step = sentBytes / size_t(size()) / 64 * 64;
    for (size_t begin = 0; begin < longest; begin += step) {
      check(api.groupBegin());
      for (int peer = 0; peer < size(); ++peer)
        if (peer != rank())
          tradeRange(gradients, peer, begin, step);
      check(api.groupEnd());
      forEachOwned(
          gradients, rank(), begin, step, sentSize,
          [&](const OwnedGradient &part, size_t from, size_t count, size_t at) {
            size_t width = elementBytes(part.type);
            check(api.copy(scratch + size_t(rank()) * step + at,
                           elementOf(part, from / width), count, stream));
            launchOwned(part, from / width, count / width, scratch + at,
                        step / width, size(), add);
          });
    }
  }

  // Sends a peer the range of what it owns, and takes from it that of what this
  // rank owns. Messages between two ranks are matched in their order.
  void tradeRange(std::span<const OwnedGradient> gradients, int peer,
                  size_t begin, size_t step) {
    forEachOwned(
        gradients, peer, begin, step, sentSize,
        [&](const OwnedGradient &part, size_t from, size_t count, size_t) {
          check(api.send(over.ranks,
                         elementOf(part, from / elementBytes(part.type)), count,
                         peer, stream));
        });
    forEachOwned(gradients, rank(), begin, step, sentSize,
                 [&](const OwnedGradient &, size_t, size_t count, size_t at) {
                   check(api.receive(over.ranks,
                                     scratch + size_t(peer) * step + at, count,
                                     peer, stream));
                 });
  }

  const bool deterministic;
  const NcclCommunicators over;
  const int groupRanks;
  NcclRegistrations registrations;
  std::vector<size_t> runs; // of owners; kept, so that a call allocates nothing
};

} // namespace

// Chooses between NCCL and copies between the ranks' buffers.
Result<CollectiveChannels> makeCollectives(CudaApi &api, Job &job,
                                           const DeviceOptions &options,
                                           const CollectiveResources &resources,
                                           std::vector<std::string> &notes) {
  auto made = Watchdog::make(
      api, job, {options.firstStepSeconds, options.watchdogSeconds},
      resources.compute);
  FSDPC_TRY(made);
  std::shared_ptr<Watchdog> watchdog = std::move(*made);
  if (job.sharesProcess)
    return makePeerChannels(api, job, resources, watchdog);
  return makeNcclChannels(api, job, options, resources, watchdog, notes);
}

// Reductions compute, so only gathers can do without multiprocessors.
Result<CollectiveChannels>
makeNcclChannels(CudaApi &api, Job &job, const DeviceOptions &options,
                 const CollectiveResources &resources,
                 const std::shared_ptr<Watchdog> &watchdog,
                 std::vector<std::string> &notes) {
  auto use = agreeOnNccl(api, job, options, resources);
  FSDPC_TRY(use);
  notes.push_back(use->note);
  CollectiveChannels channels;
  for (Channel channel : {gatherChannel, reduceChannel}) {
    NcclConfig config = use->config;
    config.zeroCtas &= channel == gatherChannel;
    channels[channel] = std::make_unique<NcclChannel>(
        api, job, channel, resources, watchdog, options.deterministic,
        joinNccl(api, job, channel, config, resources.groups,
                 options.joinSeconds, *watchdog),
        use->windows);
  }
  return channels;
}

} // namespace fsdpc::runtime

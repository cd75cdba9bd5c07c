// Collectives over NCCL, with one communicator per channel. With
// --deterministic the ranks exchange segments and sum them in rank order;
// otherwise NCCL sums in an order of its own.
#include "runtime/core/failure.h"
#include "runtime/cuda/collective_channel.h"

namespace fsdpc::runtime {

namespace {

// The pause between two looks at a communicator that is connecting.
constexpr double pollSeconds = 0.001;

size_t widthOf(WireType type) { return type == WireType::f32 ? 4 : 2; }

class NcclChannel : public CollectiveChannel {
public:
  NcclChannel(CudaApi &api, Job &job, Channel channel,
              const CollectiveResources &resources,
              std::shared_ptr<Watchdog> watchdog, bool deterministic,
              CudaCommunicator communicator)
      : CollectiveChannel(api, job, channel, resources, std::move(watchdog)),
        deterministic(deterministic), communicator(communicator) {
    // All collectives of a step lie in this memory. A transport that refuses to
    // register it is slower, but works.
    if (api.registerMemory(communicator, resources.memory, resources.bytes,
                           registration))
      registration = nullptr;
  }
  ~NcclChannel() override {
    if (registration)
      api.deregisterMemory(communicator, registration);
  }

  bool canCapture() const override { return true; }
  WireType travels(WireType gradient, WireType wire) const override {
    // The runtime's own sum widens what it reads; NCCL sums in the type it is
    // given.
    return deterministic && gradient == WireType::bf16 ? gradient : wire;
  }

  void allGather(const void *shard, void *whole, size_t bytes) override {
    Scope scope(*this);
    check(api.allGather(communicator, shard, whole, bytes, stream));
  }

  // Messages between the ranks of the group need no communicator of its own.
  void gatherInGroup(const void *shard, void *whole, size_t bytes,
                     int groupRanks) override {
    Scope scope(*this);
    auto *places = static_cast<char *>(whole);
    int place = rank() % groupRanks, first = rank() - place;
    check(api.copy(places + size_t(place) * bytes, shard, bytes, stream));
    if (groupRanks == 1)
      return;
    check(api.groupBegin());
    for (int member = 0; member < groupRanks; ++member) {
      if (member == place)
        continue;
      check(api.send(communicator, shard, bytes, first + member, stream));
      check(api.receive(communicator, places + size_t(member) * bytes, bytes,
                        first + member, stream));
    }
    check(api.groupEnd());
  }

  // NCCL writes straight into the shard only if that overwrites f32. Otherwise
  // its result is widened or added by a kernel.
  void reduceScatter(const DeviceReduction &reduction) override {
    Scope scope(*this);
    SumRanks sum;
    if (deterministic) {
      trade(reduction);
      sum.ranks = size();
    } else {
      bool direct = reduction.type == WireType::f32 && !reduction.add;
      check(api.reduceScatter(
          communicator, reduction.whole,
          direct ? static_cast<void *>(reduction.shard) : scratch,
          size_t(reduction.shardElements), reduction.type, stream));
      if (direct)
        return;
    }
    // The segments of all ranks, or the one sum of NCCL: both are summed,
    // widened and added by the same kernel.
    sum.first = scratch;
    launchSum(sum, reduction);
  }

  // Gathers and sums in rank order, so that norms are the same bits on all
  // ranks. The values are few.
  void allReduce(double *values, int count) override {
    Scope scope(*this);
    check(api.allGather(communicator, values, scratch,
                        size_t(count) * sizeof(double), stream));
    SumDoubles sum;
    sum.first = reinterpret_cast<const double *>(scratch);
    sum.ranks = size();
    sum.count = count;
    sum.values = values;
    launch(sum, count);
  }

private:
  // Collects the ranks' segments for this rank in scratch memory, in rank
  // order.
  void trade(const DeviceReduction &reduction) {
    size_t bytes = size_t(reduction.shardElements) * widthOf(reduction.type);
    auto *segments = static_cast<const char *>(reduction.whole);
    size_t own = size_t(rank()) * bytes;
    check(api.copy(scratch + own, segments + own, bytes, stream));
    // One group, or two ranks that both send first would wait for each other.
    check(api.groupBegin());
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank())
        continue;
      size_t at = size_t(peer) * bytes;
      check(api.send(communicator, segments + at, bytes, peer, stream));
      check(api.receive(communicator, scratch + at, bytes, peer, stream));
    }
    check(api.groupEnd());
  }

  const bool deterministic;
  const CudaCommunicator communicator;
  void *registration = nullptr;
};

// Joins one communicator of all ranks. On failure it ends the job: every rank
// either sees the failure or waits for a rank that does.
CudaCommunicator join(CudaApi &api, Job &job, double seconds) {
  struct {
    CudaStatus status;
    NcclId id;
  } own = {};
  auto rank = [&] { return "rank " + std::to_string(job.rank); };
  if (job.rank == 0)
    own.status = api.makeNcclId(own.id);
  // The status travels with the id: a failure of rank 0 must reach the ranks
  // that would wait for it.
  std::vector<decltype(own)> all(size_t(job.size));
  job.channel[controlChannel]->allGather(&own, all.data(), sizeof own);
  if (all[0].status)
    failJob(job, "cannot initialize NCCL: " + api.errorText(all[0].status));
  CudaCommunicator communicator = nullptr;
  CudaStatus status =
      api.initCommunicator(communicator, job.rank, job.size, all[0].id);
  auto began = std::chrono::steady_clock::now();
  if (!status)
    // Polls, since NCCL itself waits for missing ranks without a limit.
    while ((status = api.communicatorState(communicator)) == cudaInProgress) {
      std::chrono::duration<double> waited =
          std::chrono::steady_clock::now() - began;
      if (seconds > 0 && waited.count() >= seconds) {
        awaitTurn(job, /*later=*/false);
        fail(rank() + ": NCCL did not connect all " + std::to_string(job.size) +
             " ranks within --join-timeout " + std::to_string(int(seconds)) +
             " s; set NCCL_DEBUG=INFO to see what it waits for");
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(pollSeconds));
    }
  if (status) {
    std::string text = api.errorText(status);
    awaitTurn(job, /*later=*/true);
    fail(rank() + ": NCCL cannot connect to the other ranks: " + text);
  }
  return communicator;
}

} // namespace

// Chooses between NCCL and copies between the ranks' buffers.
Result<CollectiveChannels>
makeCollectives(CudaApi &api, Job &job, const DeviceOptions &options,
                const CollectiveResources &resources) {
  auto made = Watchdog::make(
      api, job, {options.firstStepSeconds, options.watchdogSeconds},
      resources.compute);
  FSDPC_TRY(made);
  std::shared_ptr<Watchdog> watchdog = std::move(*made);
  if (job.sharesProcess)
    return makePeerChannels(api, job, resources, watchdog);
  return makeNcclChannels(api, job, options, resources, watchdog);
}

CollectiveChannels makeNcclChannels(CudaApi &api, Job &job,
                                    const DeviceOptions &options,
                                    const CollectiveResources &resources,
                                    const std::shared_ptr<Watchdog> &watchdog) {
  CollectiveChannels channels;
  for (Channel channel : {gatherChannel, reduceChannel}) {
    // Communicators are joined one after the other, in the same order on all
    // ranks. The watchdog owns them from here on.
    CudaCommunicator communicator = join(api, job, options.joinSeconds);
    watchdog->watch(channel, communicator);
    channels[channel] =
        std::make_unique<NcclChannel>(api, job, channel, resources, watchdog,
                                      options.deterministic, communicator);
  }
  return channels;
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part that both kinds of device collectives share: a channel with its
// stream, and marks around each call by which the watchdog sees it begin and
// end.
#pragma once

#include "runtime/cuda/collectives.h"
#include "runtime/cuda/kernels/own.h"
#include "runtime/cuda/watchdog.h"

namespace fsdpc::runtime {

/// Every collective of a subclass opens a Scope first and passes the status of
/// each call to check(), which ends the job in the name of the announced
/// collective.
class CollectiveChannel : public Collectives {
public:
  CollectiveChannel(CudaApi &api, Job &job, Channel channel,
                    const CollectiveResources &resources,
                    std::shared_ptr<Watchdog> watchdog)
      : api(api), job(job), channel(channel),
        stream(channel == gatherChannel ? resources.gather : resources.reduce),
        scratch(static_cast<char *>(resources.scratch)),
        scratchBytes(resources.scratchBytes), sentBytes(resources.sentBytes),
        watchdog(std::move(watchdog)) {}

  /// The calls of the loop's thread. `announce` comes before each collective,
  /// and names the op and the unit that the watchdog prints.
  int rank() const override { return job.rank; }
  int size() const override { return job.size; }
  void announce(const char *op, const char *unit) override {
    name = watchdog->nameOf(op, unit);
  }
  void beginSection(int64_t step) override {
    if (channel == gatherChannel) // once for both channels
      watchdog->beginStep(step);
  }

  /// In pieces of which the scratch memory holds the values of all ranks. Sums
  /// of norms are one piece; sums of rows, of columns and of the channels of
  /// synchronized statistics may be several.
  void allReduce(double *values, int count) override {
    Scope scope(*this);
    size_t piece = scratchBytes / (sizeof(double) * size_t(size()));
    int most = int(std::min(std::max<size_t>(piece, 1), size_t(count)));
    for (int begin = 0; begin < count; begin += most)
      sumPiece(values + begin, std::min(most, count - begin));
  }

  SentBytes sent() const override { return sentSoFar; }
  uint64_t enqueued() const override { return watchdog->enqueued(channel); }
  uint32_t marks() const override { return watchdog->marks(channel); }

protected:
  /// Sums a piece of allReduce.
  virtual void sumPiece(double *values, int count) = 0;

  /// Marks the begin and end of one collective, on the host and on the stream.
  class Scope {
  public:
    explicit Scope(CollectiveChannel &own) : own(own) {
      own.watchdog->markHost(own.channel, own.name, true);
      own.watchdog->markStream(own.channel, own.name, true, own.stream);
    }
    ~Scope() {
      own.watchdog->markStream(own.channel, own.name, false, own.stream);
      own.watchdog->markHost(own.channel, own.name, false);
    }
    Scope(const Scope &) = delete;

  private:
    CollectiveChannel &own;
  };

  /// Ends the job with the name of the announced collective unless the status
  /// is cudaOk.
  void check(CudaStatus status) { watchdog->check(name, status); }
  /// Enqueues one of the runtime's own kernels on the channel's stream. The
  /// kernels loop, so the number of blocks is bounded.
  template <typename Arguments>
  void launch(const Arguments &arguments, int64_t threads) {
    int64_t blocks =
        std::clamp<int64_t>((threads + ownThreads - 1) / ownThreads, 1, 4096);
    check(api.launchOwn(OwnKernels::numberOf<Arguments>(), blocks, &arguments,
                        sizeof arguments, stream));
  }
  /// Overwrites the shard of `reduction` with the sum over the ranks that `sum`
  /// describes, or adds to it.
  void launchSum(SumRanks sum, const DeviceReduction &reduction) {
    sum.type = sum.wire = reduction.type;
    sum.blocks = {reduction.blocks, blockBytes(reduction.blocks)};
    sum.elements = sum.shardElements = reduction.shardElements;
    if (!sum.stride)
      sum.stride = reduction.shardElements;
    sum.shard = reduction.shard;
    sum.add = reduction.add;
    launch(sum, reduction.shardElements / 4);
  }

  CudaApi &api;
  Job &job;
  const Channel channel;
  const CudaStream stream;
  /// collectiveScratchBytes, shared by both channels; only the reduce channel
  /// uses it.
  char *const scratch;
  const size_t scratchBytes;
  const size_t sentBytes; ///< of the scratch, for values of gradients
  SentBytes sentSoFar{};
  std::shared_ptr<Watchdog> watchdog;
  uint32_t name = 0; ///< of the announced collective
};

/// Make the two channels of a rank. All ranks call the same function together.
/// NCCL's end the job if ranks cannot join.
Result<CollectiveChannels>
makeNcclChannels(CudaApi &api, Job &job, const DeviceOptions &options,
                 const CollectiveResources &resources,
                 const std::shared_ptr<Watchdog> &watchdog,
                 std::vector<std::string> &notes);
Result<CollectiveChannels>
makePeerChannels(CudaApi &api, Job &job, const CollectiveResources &resources,
                 const std::shared_ptr<Watchdog> &watchdog);

} // namespace fsdpc::runtime

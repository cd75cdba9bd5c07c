// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host device: one thread per stream, a pool of compute threads for the
// compute stream, and the library plans of the manifest. Collectives call the
// job's communicators on the threads of their streams, so communication
// overlaps with computation as it does on a GPU.
#pragma once

#include "runtime/comm/block_reduction.h"
#include "runtime/comm/communicator.h"
#include "runtime/core/device.h"
#include "runtime/host/library_plans.h"
#include "runtime/host/stream.h"
#include "runtime/host/thread_pool.h"
#include "runtime/numeric/square_sum.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace fsdpc::runtime {

struct OptimizerOperands;

class HostDevice : public Device {
public:
  /// Makes a device with `threads` compute threads and prepares every library
  /// plan of the manifest, with one allocation for all scratchpads.
  static Result<std::unique_ptr<HostDevice>> make(const Manifest &manifest,
                                                  int threads);
  ~HostDevice() override;

  /// Memory is taken block by block: the kernel backs it only when it is
  /// touched.
  Status reserve(const MemoryPlan &) override { return {}; }
  void *allocate(size_t bytes) override;
  void release(void *memory, size_t bytes) override;
  void zero(void *memory, size_t bytes) override;
  void upload(void *to, const void *from, size_t bytes) override;
  void download(void *to, const void *from, size_t bytes) override;
  bool isHostMemory() const override { return true; }
  std::vector<std::string> notes() const override;
  const void *constants(const fsdpc_program &program) override {
    return program.constants;
  }

  /// The host writes where the kernels read.
  Result<void *> staging(int, void *memory, size_t) override { return memory; }
  void awaitSlot(int) override {}
  void send(int) override {}
  void enter(fsdpc_rank &rank, const Section &section,
             void (*entry)(fsdpc_rank *)) override;
  /// A step's results are there as soon as its work is done, and reading them
  /// costs nothing.
  bool runsAhead() const override { return false; }
  void results(fsdpc_rank &rank, int64_t step, StepResults &results) override;
  void synchronize() override;
  Status gatherWholes(fsdpc_rank &rank) override;

#define FSDPC_DEVICE_OVERRIDES
#include "runtime/core/calls.inc"

  int64_t takeExposedNanoseconds() override;
  bool canKeepTimes() const override { return true; }
  void keepTimes(const std::array<size_t, FSDPC_STREAMS> &count) override;
  uint64_t enqueued(int stream) const override;
  uint64_t completed(int stream) const override {
    return streams[stream]->done();
  }
  bool isWait(int stream, uint64_t position) const override {
    return streams[stream]->isWait(position);
  }
  DeviceTimes times(int stream, uint64_t position) const override;

  /// Enqueues any work on a stream.
  template <typename Work> void run(int stream, Work &&work) {
    streams[stream]->enqueueWork(std::forward<Work>(work));
  }
  /// Copies a list for the work or command that is enqueued next on a stream;
  /// the copy lives until that has run.
  template <typename T> T *keep(int stream, const T *values, int count) {
    return streams[stream]->keep(values, count);
  }
  /// Cuts [0, extent) among the compute threads in pieces of at least `grain`
  /// and returns when all are done. Only work on the compute stream may call
  /// it. There are several pieces per thread, so that a thread that loses its
  /// core for a while does not delay the others.
  template <typename Body>
  void parallelFor(int64_t extent, int64_t grain, const Body &body) {
    if (extent <= 0)
      return;
    int64_t wanted = pool.threads() == 1 ? 1 : 4 * pool.threads();
    int64_t pieces =
        std::clamp<int64_t>(extent / std::max<int64_t>(grain, 1), 1, wanted);
    pool.run(pieces, [&](int64_t piece, int) {
      body(extent * piece / pieces, extent * (piece + 1) / pieces);
    });
  }

private:
  /// A position in a stream; a null stream means never recorded.
  struct Event {
    Stream *stream = nullptr;
    uint64_t position = 0;
  };

  explicit HostDevice(int threads) : pool(threads) {}
  Stream &compute() { return *streams[FSDPC_STREAM_COMPUTE]; }
  void call(Command::Kind kind, int32_t plan,
            std::initializer_list<const void *> operands,
            const fsdpc_kernel *rows = nullptr);
  void execute(Command &command);
  template <typename GradientOf>
  void reduce(fsdpc_rank &rank, int count, const int32_t *layouts,
              const GradientOf &gradientOf, bool add);
  SquareSum layoutSquares(fsdpc_rank &rank, int32_t layout);
  void reduceShard(fsdpc_rank &rank, int32_t index, const void *gradient,
                   WireType type, bool add);
  void sumMembers(const fsdpc_rank &rank, const fsdpc_kernel &kernel,
                  int32_t layout, int32_t perMember, const void *scale,
                  const double *factors, double *sums);
  void addMembers(const fsdpc_rank &rank, const fsdpc_kernel &kernel,
                  int32_t layout, size_t perMember, const double *factors,
                  const OptimizerOperands &operands, int64_t first,
                  int64_t last);
  void sumFactors(const fsdpc_rank &rank, int32_t layout, const void *scale,
                  double clipValue, double *sums);
  void addFactors(const fsdpc_rank &rank, int32_t layout, const float *gradient,
                  int64_t first, int64_t last, float scale, float limit,
                  double *sums);

  /// `threads` compute threads, the compute stream's own among them.
  ThreadPool pool;
  LibraryPlans plans;
  Scratch scratch;
  size_t scratchTotal = 0;
  /// Indexed by the number that the program gives an event. Recorded and waited
  /// for by the loop's thread only.
  std::vector<Event> events;
  StepResults reported; ///< results of the step that is running
  /// Elements [from, to) of a member, in elements of the layout.
  struct Piece {
    size_t member;
    int64_t from, to;
  };
  std::vector<Piece> pieces; ///< of the layout whose members are summed
  std::vector<SquareSum> memberTotals;
  std::vector<double> roundedSums; ///< what the optimizer that runs takes
  /// The exchange of owners in the collective that runs, for each channel.
  /// Kept, so that a step allocates nothing.
  std::vector<OwnedGradient> ownedGradients;
  std::vector<OwnedValues> shared;
  /// The next gather in place waits for all ranks: it is the first one since
  /// they may have updated their shards.
  bool meetsForGather = false;
  BlockReducer blockReducer; ///< of the stream `reduce`
  /// Last, so that their threads start after, and end before, what they use.
  std::unique_ptr<Stream> streams[FSDPC_STREAMS];
};

} // namespace fsdpc::runtime

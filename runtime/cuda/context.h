// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// State that all parts of a CUDA device share: the table, the streams, and the
// program's position. From the position a failed call is reported as the
// program's op in its unit and step, although the library that failed knows
// neither.
#pragma once

#include "runtime/cuda/api.h"
#include "runtime/cuda/command_counts.h"
#include "runtime/cuda/kernels/own.h"
#include "runtime/support/status.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>

namespace fsdpc::runtime {

/// The three streams of fsdpc.h, one more for copies of inputs, and two for
/// copies of what is offloaded, to the device and back.
constexpr int copyStream = FSDPC_STREAMS;
constexpr int offloadInStream = FSDPC_STREAMS + 1;
constexpr int offloadOutStream = FSDPC_STREAMS + 2;
constexpr int cudaStreams = FSDPC_STREAMS + 3;

/// One call of an entry function, in the order of its stream.
struct NamedCall {
  std::string op;    ///< "matmul", "all_gather", …
  std::string unit;  ///< may be empty
  std::string range; ///< "UNIT OP", for profilers
};

class CudaContext {
public:
  /// Keeps references to all three, which must outlive it. Makes no streams
  /// yet, because no device has been selected.
  CudaContext(CudaApi &api, Job &job, const Manifest &manifest);
  ~CudaContext();
  CudaContext(const CudaContext &) = delete;

  /// Makes the streams on the calling thread's device. The destructor destroys
  /// them.
  Status makeStreams();

  /// Marks that an entry function is about to enqueue its calls.
  void begin(const std::string &entry, int64_t step);
  /// Marks that a graph is about to run. From here on no call is current until
  /// the next one is enqueued, and a failure is that of a replay.
  void replay();
  /// Returns the next call on a stream and makes it the current one.
  const NamedCall &next(int stream);
  /// Ends the job if a call of the table failed, with one line that names the
  /// rank, the step, and the current op and unit.
  void check(CudaStatus status) const;

  /// Ends the job because the device has not reached an event within
  /// limitSeconds.
  [[noreturn]] void endHung() const;

  /// Enqueues one of the runtime's own kernels for `units` elements of work,
  /// one per thread.
  template <typename Arguments>
  void launch(const Arguments &arguments, int64_t units, int stream) {
    launchBlocks(arguments, (units + ownThreads - 1) / ownThreads, stream);
  }
  /// The same, with a number of blocks instead.
  template <typename Arguments>
  void launchBlocks(const Arguments &arguments, int64_t blocks, int stream) {
    constexpr int64_t most = 4096; // kernels loop over what lies beyond
    check(api.launchOwn(OwnKernels::numberOf<Arguments>(),
                        std::clamp<int64_t>(blocks, 1, most), &arguments,
                        sizeof arguments, streams[size_t(stream)]));
  }
  /// Ends the job if a section's graph cannot be made, for which no call of the
  /// section is to blame: it takes memory beside the program's own.
  void checkGraph(CudaStatus status) const;
  /// Enqueues a copy on a stream.
  void copy(void *to, const void *from, size_t bytes, int stream) {
    check(api.copy(to, from, bytes, streams[size_t(stream)]));
  }

  /// Enqueues a fill of bytes on a stream, unless there are none.
  void fill(void *to, int byte, size_t bytes, int stream) {
    if (bytes > 0)
      check(api.fill(to, byte, bytes, streams[size_t(stream)]));
  }

  CudaApi &api;
  Job &job;
  const Manifest &manifest;
  /// True if no collective runs: a single rank, unless FSDPC_NCCL_ALONE=1 makes
  /// it use NCCL as several do, which tests NCCL on one GPU.
  const bool alone;
  /// The time for which the host waits for an event; 0: no limit.
  double limitSeconds = 0;
  bool isFirstStep = true; ///< and has a limit of its own
  /// Indexed by FSDPC_STREAM_*, copyStream and so on; null until makeStreams().
  std::array<CudaStream, cudaStreams> streams{};
  /// The step of the last begin(), for messages.
  int64_t step = 0;
  /// The current call, or a name for work of the runtime itself.
  const NamedCall *current = nullptr;
  /// Tells how far the streams that communicate have come.
  CommandCounts commands;

private:
  using Calls = std::array<std::vector<NamedCall>, FSDPC_STREAMS>;
  std::map<std::string, Calls, std::less<>> entries; ///< by name
  const Calls *entry = nullptr;
  bool replayed = false; ///< a graph has run
  /// Per stream, the index of the next call in `entry`.
  std::array<size_t, FSDPC_STREAMS> position{};
};

/// Returns the reason for which a library does not take a plan.
inline std::string refusal(const CudaContext &context, CudaStatus status,
                           const CudaChoice &choice) {
  return status == cudaRefused ? choice.algorithm
                               : context.api.errorText(status);
}

/// The scope of one call of the C ABI: makes it current and names it in the
/// profiler's ranges while it enqueues.
class CallScope {
public:
  CallScope(CudaContext &context, int stream)
      : context(context), call(context.next(stream)) {
    context.api.beginRange(call.range.c_str());
  }
  ~CallScope() { context.api.endRange(); }
  CallScope(const CallScope &) = delete;

  CudaContext &context;
  const NamedCall &call;
};

/// Owns an event of the table.
class OwnedEvent {
public:
  explicit OwnedEvent(CudaContext &context) : context(context) {
    context.check(context.api.createEvent(event));
  }
  ~OwnedEvent() { context.api.destroyEvent(event); }
  OwnedEvent(const OwnedEvent &) = delete;

  void record(int stream) {
    context.check(
        context.api.recordEvent(event, context.streams[size_t(stream)]));
    recorded = true;
  }
  /// Makes later work on a stream wait for the last record, if there is one.
  void wait(int stream) {
    if (recorded)
      context.check(
          context.api.waitEvent(context.streams[size_t(stream)], event));
  }
  /// Blocks the host until the last record is reached. Sleeps between queries,
  /// and ends the job after CudaContext::limitSeconds.
  void await();

private:
  CudaContext &context;
  CudaEvent event = nullptr;
  bool recorded = false;
};

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The device of one rank: its memory, its streams and events, and everything
// that the C ABI enqueues. Every backend implements this one interface, and one
// backend is linked into a program.
//
// The host device runs streams as threads, so that overlap, ordering and races
// can be tested without a GPU. The CUDA device (runtime/cuda) stands on a table
// of its own (runtime/cuda/api.h), which has a real and an emulated side.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/cli/device_options.h"
#include "runtime/include/fsdpc.h"
#include "runtime/support/status.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace fsdpc {
struct MemoryPlan;
} // namespace fsdpc

namespace fsdpc::runtime {

struct Job;

/// When a command of a stream ran, in nanoseconds of the host's steady clock.
struct DeviceTimes {
  int64_t begin = 0, end = 0;
  /// Time in [begin, end) that the stream's thread spent on a core.
  int64_t cpu = 0;
  int waitedFor = -1; ///< event waits: the stream that was waited for
};

/// Bytes that a rank has sent: over all ranks, in its shard group, across
/// groups, and by the control channel: losses, flags, these counts, and what is
/// gathered for files and reports, such as saved gradients. The last is what
/// has gone to other nodes of all but the control channel, counted on the host.
using SentBytes = std::array<uint64_t, 5>;

/// One call of an entry function of the program.
struct Section {
  bool update = false; ///< false: a microbatch
  int slot = 0;        ///< input slot that the microbatch reads, 0 or 1
  bool first = true;   ///< first microbatch of its step: gradients are
                       ///< overwritten, not added to
  int64_t microbatch = 0, step = 0;
  bool evaluate = false; ///< a microbatch of an evaluation
  size_t bucket = 0;     ///< of the microbatch; 0 for an update
  /// CUDA: gathers into a layout's own memory are made: in updates, and in the
  /// first microbatch of a step and of an evaluation. The device sets it.
  bool gathers = false;

  /// Identifies the entry function and its collectives. Sections of one enqueue
  /// the same.
  using Entry = std::tuple<bool, bool, size_t, bool>;
  Entry entry() const { return {update, evaluate, bucket, gathers}; }
};

/// The results of one step: loss, divisor and metrics of each of this rank's
/// microbatches, and the gradient norm over all ranks.
struct StepResults {
  std::vector<float> losses, valid;
  /// For output i of the manifest, metrics[i * K + k] is that of microbatch k,
  /// for K microbatches per rank; only those of scalars are set.
  std::vector<float> metrics;
  float metricOf(size_t output, size_t k) const {
    return metrics[output * losses.size() + k];
  }
  double norm = 0;
  /// This rank's gradients with elements that --reduce-hook=zero-nonfinite has
  /// replaced, over all microbatches.
  double zeroed = 0;
  /// The first layout whose gradient is not finite, on any rank. The update was
  /// skipped then. -1: none.
  int32_t nonFinite = -1;
};

class Device {
public:
  virtual ~Device() = default;

  // ---- memory, used before training; every call but `allocate` blocks ----
  // Reserves memory for the whole plan. runtime/core takes plan.allocated bytes
  // of it by `allocate`; the backend takes the rest. If there is too little
  // memory, the error has both numbers.
  virtual Status reserve(const MemoryPlan &plan) = 0;
  /// Returns uninitialised device memory, or null if there is none left. It is
  /// aligned to 64 bytes on the host; on CUDA to 256, and to 4096 from 1 MiB
  /// on. The caller releases it.
  virtual void *allocate(size_t bytes) = 0;
  /// Returns host memory for what is offloaded of layouts, with all bytes 0, or
  /// null if there is none left. `upload`, `download` and copies of the device
  /// reach it, and the device owns it. Only a device that has such memory is
  /// asked (offloadsToPinned).
  virtual void *allocateOffloaded(size_t) { return nullptr; }
  virtual void release(void *memory, size_t bytes) = 0;
  /// Bytes are set to 0, which is zero in every element type.
  virtual void zero(void *memory, size_t bytes) = 0;
  virtual void upload(void *to, const void *from, size_t bytes) = 0;
  virtual void download(void *to, const void *from, size_t bytes) = 0;
  /// Returns true if the host may dereference pointers to device memory.
  virtual bool isHostMemory() const = 0;
  /// Lines for the log's header: what the backend chose at start (the GPU, each
  /// library's algorithm).
  virtual std::vector<std::string> notes() const { return {}; }
  /// The program's constant tensors in device memory.
  virtual const void *constants(const fsdpc_program &program) = 0;

  // ---- called by the training loop ----
  //
  // Returns host memory of `bytes` bytes whose content `send` copies to
  // `memory`, a part of input slot `slot`. It is `memory` itself if the host
  // can write there. The device owns it.
  virtual Result<void *> staging(int slot, void *memory, size_t bytes) = 0;
  /// Blocks until the staging memory of a slot may be written again.
  virtual void awaitSlot(int slot) = 0;
  /// Enqueues the copies from a slot's staging memory to the device. They run
  /// after all earlier work that reads the slot.
  virtual void send(int slot) = 0;
  /// Calls `entry` to enqueue its work, or replays the graph of an earlier call
  /// with the same section.
  virtual void enter(fsdpc_rank &rank, const Section &section,
                     void (*entry)(fsdpc_rank *)) = 0;
  /// Returns true if the loop may enqueue the next step before it asks for the
  /// results of this one. Otherwise the loop synchronizes after each section.
  virtual bool runsAhead() const = 0;
  /// Enqueues the report of an evaluation, which ends with no update; `results`
  /// of the same step reads it. The default does nothing: the results of the
  /// host need no report.
  virtual void report(int64_t) {}
  /// Blocks until `step` has run and reads what it reported. `step` must be one
  /// of the last two steps.
  virtual void results(fsdpc_rank &rank, int64_t step,
                       StepResults &results) = 0;
  /// Blocks until everything enqueued on every stream has run.
  virtual void synchronize() = 0;
  /// Fills every replicated copy of the layouts from the shards, at start.
  /// Blocks; all ranks call it together. The caller must end the job if it
  /// fails, because the other ranks may be waiting for this one.
  virtual Status gatherWholes(fsdpc_rank &rank) = 0;

  // ---- calls of the C ABI, described in fsdpc.h; all only enqueue ----
  // Lists belong to the caller and are gone when the work runs.
  // They are generated from the rt dialect; `fsdpc_all_gather` is `allGather`.
#define FSDPC_DEVICE_MEMBERS
#include "runtime/core/calls.inc"

  /// Returns what this rank's collectives have sent in `step`, one of the last
  /// two; null if the device does not count it. On the host the job's
  /// communicators do.
  virtual const SentBytes *sentBytes(int64_t) const { return nullptr; }

  /// Returns the nanoseconds that the compute stream has slept in event waits
  /// since the last call. That is the communication that no computation hid.
  virtual int64_t takeExposedNanoseconds() = 0;
  /// Returns true if the device can keep the times of its commands.
  virtual bool canKeepTimes() const = 0;
  /// Keeps the times of the last count[s] commands of each stream s. Must be
  /// called before anything is enqueued.
  virtual void keepTimes(const std::array<size_t, FSDPC_STREAMS> &count) = 0;
  /// Number of commands enqueued on a stream so far, with waits if they are
  /// commands; 0 for a stream whose commands the device does not count.
  virtual uint64_t enqueued(int stream) const = 0;
  /// Questions of a watchdog, on any thread; 0 and false on a device that does
  /// not count. The number of commands that have run on a stream so far, and
  /// whether a recent one is a wait for another stream.
  virtual uint64_t completed(int) const { return 0; }
  virtual bool isWait(int, uint64_t) const { return false; }
  /// Returns false if the next command of a stream waits for another stream,
  /// which on some devices is no command of its own.
  virtual bool hasBegun(int) const { return true; }
  /// Returns when command `position` of a stream ran. The command must be done
  /// and among those whose times are kept.
  virtual DeviceTimes times(int stream, uint64_t position) const = 0;
};

// ---- what each backend defines; a program links exactly one ----

/// Name of the linked backend: "host", "cuda" or "cuda-emulation".
const char *backendName();
/// Returns true if the device is emulated, so that its times mean nothing.
/// Every line of output then says so.
bool isEmulation();
/// Checks that this machine can run the backend; the error says what is
/// missing. Called once per process, before any other function of the backend.
Status checkBackend(const Manifest &manifest);
/// Makes the device of the job's rank with every library plan of the manifest
/// prepared.
Result<std::unique_ptr<Device>> makeDevice(const Manifest &manifest,
                                           const fsdpc_program &program,
                                           Job &job,
                                           const DeviceOptions &options);
/// Bytes that such a device takes in addition to what runtime/core allocates:
/// scratchpads and workspaces. Computed without making a device, for the memory
/// table. Stacks are not included; the memory plan counts them.
int64_t scratchpadBytes(const Manifest &manifest, int ranks, int threads);

} // namespace fsdpc::runtime

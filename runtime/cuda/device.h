// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CUDA device of one rank, on the table of api.h. A step allocates no
// memory, and the host waits only for the results of the step before: the loop
// enqueues one step ahead of them.
//
// All device memory comes from one allocation (memory.h), so that the memory
// plan can be exact and NCCL can register it as a whole.
#pragma once

#include "runtime/abi/cuda_scratch.h"
#include "runtime/core/device.h"
#include "runtime/cuda/activations.h"
#include "runtime/cuda/attention.h"
#include "runtime/cuda/collectives.h"
#include "runtime/cuda/convolutions.h"
#include "runtime/cuda/inputs.h"
#include "runtime/cuda/matrix_products.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/offload.h"
#include "runtime/cuda/products.h"
#include "runtime/cuda/sections.h"
#include "runtime/cuda/selection.h"
#include "runtime/cuda/sent_bytes.h"
#include "runtime/cuda/update.h"

#include <unordered_map>

namespace fsdpc::runtime {

/// The elements [begin, begin + elements) of a layout's sum, which this rank
/// takes.
struct SumPart {
  float *sum;
  int64_t begin, elements;
};

/// All calls belong on the thread that called prepare(): CUDA keeps the
/// selected device per thread, and a library plan belongs to the thread that
/// made it.
class CudaDevice : public Device {
public:
  CudaDevice(CudaApi &api, const Manifest &manifest,
             const fsdpc_program &program, Job &job,
             const DeviceOptions &options);
  ~CudaDevice() override;
  /// Selects the rank's GPU and plans every library call.
  Status prepare();

  /// The functions of Device. Memory is device memory; upload and download wait
  /// until the bytes are there.
  Status reserve(const MemoryPlan &plan) override;
  void *allocate(size_t bytes) override;
  void *allocateOffloaded(size_t bytes) override;
  void release(void *, size_t) override {} ///< all of it is freed at the end
  void zero(void *memory, size_t bytes) override;
  void upload(void *to, const void *from, size_t bytes) override;
  void download(void *to, const void *from, size_t bytes) override;
  bool isHostMemory() const override { return false; }
  std::vector<std::string> notes() const override { return chosen; }
  const void *constants(const fsdpc_program &) override {
    return deviceConstants;
  }

  Result<void *> staging(int slot, void *memory, size_t bytes) override;
  void awaitSlot(int slot) override;
  void send(int slot) override;
  void report(int64_t step) override;
  void enter(fsdpc_rank &rank, const Section &section,
             void (*entry)(fsdpc_rank *)) override;
  bool runsAhead() const override { return true; }
  void results(fsdpc_rank &rank, int64_t step, StepResults &results) override;
  void synchronize() override;
  Status gatherWholes(fsdpc_rank &rank) override;

#define FSDPC_DEVICE_OVERRIDES
#include "runtime/core/calls.inc"

  const SentBytes *sentBytes(int64_t step) const override {
    return isAlone() || context.job.sharesProcess ? nullptr : &sent.of(step);
  }
  uint64_t enqueued(int stream) const override {
    return context.commands.enqueued(stream);
  }
  uint64_t completed(int stream) const override {
    return context.commands.completed(stream);
  }
  bool hasBegun(int stream) const override {
    return context.commands.hasBegun(stream);
  }

  /// No times are kept; profilers see the ranges that CallScope opens.
  int64_t takeExposedNanoseconds() override { return 0; }
  bool canKeepTimes() const override { return false; }
  void keepTimes(const std::array<size_t, FSDPC_STREAMS> &) override {}
  DeviceTimes times(int, uint64_t) const override { return {}; }

private:
  Status selectDevice();
  Status planLibraries();
  /// Chooses the products' algorithms by their times (--tune-products).
  Status tune();
  void makeSections();
  Status makeCollectives(const fsdpc_rank &rank);
  Collectives &channel(Channel channel) { return *channels[size_t(channel)]; }
  /// Gathers all shards of a layout into `whole`, of so many bytes each; on a
  /// single rank a copy.
  void gatherBytes(const fsdpc_rank &rank, int32_t layout, const void *shard,
                   void *whole, size_t bytes);
  /// The same for f32.
  void gatherWide(const fsdpc_rank &rank, int32_t layout, const void *shard,
                  void *whole) {
    gatherBytes(rank, layout, shard, whole,
                size_t(rank.layouts[size_t(layout)].shard) * sizeof(float));
  }
  /// The same in blocks, which are converted to the compute type when all are
  /// there: every rank computes with the same rounded values.
  void gatherBlocks(const fsdpc_rank &rank, int32_t layout, void *whole);
  /// Returns true if a gather of a forward has nothing to do: a layout's own
  /// memory keeps the parameters until the next update.
  bool isGathered(const fsdpc_rank &rank, int32_t layout,
                  const void *destination) const {
    return !gathers && destination == rank.layouts[size_t(layout)].computeWhole;
  }
  /// Gathers a layout's parameters in the compute type.
  void gatherParameters(const fsdpc_rank &rank, int32_t layout, void *whole);
  /// Uploads where the members of layouts lie whose reductions read it.
  Status uploadRanges();
  /// Returns true if gathers read a layout's shard from pinned memory.
  bool isReadFromPinned(const fsdpc_rank &rank, int32_t layout) const;
  /// Enqueues a cast of a master to where a gather finds it.
  void castMaster(const float *master, void *to, WireType type,
                  int64_t elements);
  /// Brings a rank's offloaded parameters there, in the compute type.
  void readParameters(const fsdpc_rank &rank, int32_t layout, char *to);
  /// Returns true if one of several ranks owns the layout.
  bool isShared(const fsdpc_rank &rank, int32_t layout) const;
  /// Lists what flushShared then sends from owners to all others.
  void shareOwned(const fsdpc_rank &rank, int32_t layout, void *whole);
  void flushShared();
  /// Names the collective that the call begins.
  void announce(const CallScope &scope, Channel on);
  /// Enqueues a kernel of the program, which is looked up at its first launch.
  void launchKernel(const fsdpc_kernel &kernel, int64_t blocks,
                    void *const *buffers, int count);
  /// Enqueues a kernel of an optimizer, with operands that the update adds.
  CudaUpdate::Launch launcher(const fsdpc_kernel &kernel);
  /// Returns what the collectives of both channels have sent so far.
  SentBytes sentSoFar() const;
  /// Sums one layout's gradient, of type `type`, over the ranks into this
  /// rank's shard, or adds to it.
  void reduce(fsdpc_rank &rank, int32_t layout, const void *gradient,
              WireType type, bool add);
  void reduceCut(fsdpc_rank &rank, int32_t layout, const void *gradient,
                 WireType type, bool add);
  /// The same with the shard in device memory.
  void reduceTo(fsdpc_rank &rank, int32_t layout, const void *gradient,
                WireType type, float *shard, bool add);
  void reduceOwned(fsdpc_rank &rank, int32_t layout, const void *gradient,
                   WireType type, bool add);
  void reduceBlocks(fsdpc_rank &rank, int32_t layout, const void *gradient,
                    WireType type, BlockType blocks, bool add);
  /// The same where ranks send less than their gradients, by the kind of
  /// compression.
  void reduceCompressed(fsdpc_rank &rank, int32_t layout, const void *gradient,
                        WireType type, bool add);
  template <typename Kind>
  void reduceAs(fsdpc_rank &rank, int32_t layout, const void *gradient,
                WireType type, bool add);
  SumPart sumPartOf(const fsdpc_rank &rank, int32_t layout) const;
  void addMember(const Member &member, const void *gradient, WireType type,
                 bool add, float *to);
  void addPart(const SumPart &part, const float *values, const Member &member);
  void orthonormalise(float *vectors, const float *first, int64_t count,
                      int64_t length);
  void sumOverRanks(float *values, int64_t elements);
  Status uploadFirstStates();
  /// Sums the gradients that reduceOwned has listed on their owners.
  void flushOwned(bool add);
  /// Enqueues a cast to the wire, at a byte of `wire`; returns where that is.
  void *castToWire(const void *gradient, WireType from, WireType to,
                   int64_t elements, int64_t padded, size_t offset);
  /// Returns true if no collective runs.
  bool isAlone() const { return context.alone; }
  CudaScratch scratchSizes() const {
    return cudaScratch(context.manifest, context.job.size, !isAlone());
  }

  /// First, so that it is destroyed last: the members below refer to it.
  CudaContext context;
  const fsdpc_program &program;
  DeviceOptions options;
  CudaMemory memory;
  Products products;
  MatrixProducts matrixProducts;
  /// The prepared library calls, by their number in the manifest.
  std::vector<Product> matmuls;
  std::vector<GpuConvolution> convolutions;
  std::vector<GpuAttention> attentions;
  /// Kernels that have been launched before, by their entry in the program.
  std::unordered_map<const fsdpc_kernel *, CudaFunction> functions;
  /// Lines for notes(): each library's algorithm, and why graphs are off.
  std::vector<std::string> chosen;

  /// Parts of the one allocation.
  const void *deviceConstants = nullptr;
  char *library =
      nullptr; ///< workspace of libraries, then scratch of attention
  /// Gradients that are cast or padded for their reduction.
  void *wire = nullptr;
  size_t wireCapacity = 0;
  void *collectiveScratch = nullptr;
  /// By layout; null where no reduction reads them.
  std::vector<const MemberRange *> ranges;
  Selection selection;
  /// What states of compressions begin with, by layout; null where there are
  /// none. And the memory with which reductions compute (compressionBytes).
  std::vector<const float *> firstStates;
  void *compressionMemory = nullptr;

  SentCounts sent;
  /// Lists of one call; kept, so that a step allocates nothing.
  std::vector<OwnedGradient> owned;
  std::vector<OwnedValues> shared;
  size_t ownedSent = 0; ///< bytes of the listed gradients
  /// Parameters have changed since an evaluation gathered them last; and the
  /// section that is being enqueued gathers them.
  bool changed = true, gathers = false;

  /// Destroyed after `sections`, because NCCL does not end while a graph holds
  /// its calls.
  CollectiveChannels channels;
  std::unique_ptr<Sections> sections;
  std::unique_ptr<CudaOffload> pinned; ///< null if no layout is offloaded
  std::unique_ptr<CudaActivations> activations; ///< null if none are offloaded
  std::unique_ptr<CudaInputs> inputs;
  std::unique_ptr<CudaUpdate> update;
  /// Recorded on each stream by synchronize().
  std::array<std::unique_ptr<OwnedEvent>, cudaStreams> drained;
};

} // namespace fsdpc::runtime

// The table of runtime/cuda on host threads, for machines without a GPU
// (README.md). It checks its arguments as a debug build of CUDA would, and
// further: every buffer must lie within one allocation of the stream's device.
// Streams and graphs run on threads with random delays, so that missing events
// show as wrong results.
#pragma once

#include "runtime/cuda/api.h"
#include "runtime/emulation/capture.h"
#include "runtime/emulation/faults.h"
#include "runtime/emulation/handles.h"
#include "runtime/emulation/memory.h"
#include "runtime/emulation/nccl.h"
#include "runtime/emulation/settings.h"
#include "runtime/emulation/stream.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fsdpc::runtime::emulation {

// Counts of objects that are alive, for tests that look for leaks.
struct LiveObjects {
  size_t deviceBytes = 0, pinnedBytes = 0;
  size_t streams = 0, events = 0, graphs = 0, plans = 0, communicators = 0;
};

// Tests make their own; a program has one (theEmulation). Any thread may call
// it. A refused call leaves a detail that errorText adds on the same thread.
class Emulation : public CudaApi {
public:
  // Makes the devices, and applies a fault of the settings to all calls.
  explicit Emulation(const Settings &settings);
  LiveObjects alive();

  std::string label() const override { return "emulated"; }
  std::string errorText(CudaStatus status) override;

  CudaStatus deviceCount(int &count) override;
  CudaStatus selectDevice(int device) override;
  CudaStatus deviceInfo(CudaDeviceInfo &info) override;

  CudaStatus allocateDevice(void *&memory, size_t bytes) override;
  CudaStatus freeDevice(void *memory) override;
  CudaStatus allocatePinned(void *&memory, size_t bytes) override;
  CudaStatus freePinned(void *memory) override;
  CudaStatus copy(void *to, const void *from, size_t bytes,
                  CudaStream stream) override;
  CudaStatus fill(void *to, int byte, size_t bytes, CudaStream stream) override;

  CudaStatus createStream(CudaStream &stream, bool urgent) override;
  CudaStatus destroyStream(CudaStream stream) override;
  CudaStatus synchronizeStream(CudaStream stream) override;
  CudaStatus createEvent(CudaEvent &event) override;
  CudaStatus destroyEvent(CudaEvent event) override;
  CudaStatus recordEvent(CudaEvent event, CudaStream stream) override;
  CudaStatus waitEvent(CudaStream stream, CudaEvent event) override;
  CudaStatus queryEvent(CudaEvent event, bool &done) override;

  CudaStatus loadProgram(const fsdpc_program &program) override;
  CudaStatus findKernel(const fsdpc_kernel &kernel,
                        CudaFunction &function) override;
  CudaStatus launch(CudaFunction function, int64_t blocks, int threads,
                    void *const *buffers, int count,
                    CudaStream stream) override;
  CudaStatus launchOwn(int kernel, int64_t blocks, const void *arguments,
                       size_t bytes, CudaStream stream) override;

  CudaStatus beginCapture(CudaStream stream) override;
  CudaStatus endCapture(CudaStream stream, CudaGraph &graph) override;
  CudaStatus launchGraph(CudaGraph graph, CudaStream stream) override;
  CudaStatus destroyGraph(CudaGraph graph) override;

  CudaStatus planGemm(const CudaGemmShape &shape, size_t cap, CudaGemm &gemm,
                      CudaChoice &choice) override;
  CudaStatus gemm(CudaGemm gemm, const CudaGemmOperands &operands,
                  void *workspace, CudaStream stream) override;
  CudaStatus destroyGemm(CudaGemm gemm) override;
  CudaStatus listGemms(CudaGemm gemm, size_t cap, int most, bool roundsParts,
                       std::vector<std::string> &codes) override;
  CudaStatus chooseGemm(CudaGemm gemm, size_t cap, const std::string &code,
                        CudaChoice &choice) override;
  CudaStatus planConvolution(const ConvolutionPlan &plan, size_t cap,
                             bool deterministic, CudaConvolution &convolution,
                             CudaChoice &choice) override;
  CudaStatus convolution(CudaConvolution convolution, const void *x,
                         const void *w, void *y, void *workspace,
                         CudaStream stream) override;
  CudaStatus destroyConvolution(CudaConvolution convolution) override;
  CudaStatus planAttention(const AttentionPlan &plan, bool deterministic,
                           CudaAttention &attention,
                           CudaChoice &choice) override;
  CudaStatus attention(CudaAttention attention, const void *const *operands,
                       void *workspace, CudaStream stream) override;
  CudaStatus destroyAttention(CudaAttention attention) override;

  CudaStatus makeNcclId(NcclId &id) override;
  CudaStatus initCommunicator(CudaCommunicator &communicator, int rank,
                              int size, const NcclId &id) override;
  CudaStatus splitCommunicator(CudaCommunicator &communicator,
                               CudaCommunicator parent, int color) override;
  CudaStatus communicatorState(CudaCommunicator communicator) override;
  CudaStatus abortCommunicator(CudaCommunicator communicator) override;
  CudaStatus destroyCommunicator(CudaCommunicator communicator) override;
  CudaStatus registerMemory(CudaCommunicator communicator, void *memory,
                            size_t bytes, void *&registration) override;
  CudaStatus deregisterMemory(CudaCommunicator communicator,
                              void *registration) override;
  CudaStatus allGather(CudaCommunicator communicator, const void *shard,
                       void *whole, size_t bytes, CudaStream stream) override;
  CudaStatus reduceScatter(CudaCommunicator communicator, const void *whole,
                           void *shard, size_t elements, WireType type,
                           CudaStream stream) override;
  CudaStatus allReduce(CudaCommunicator communicator, float *values,
                       size_t elements, CudaStream stream) override;
  CudaStatus reduce(CudaCommunicator communicator, const void *values,
                    void *sum, size_t elements, WireType type, int root,
                    CudaStream stream) override;
  CudaStatus broadcast(CudaCommunicator communicator, void *values,
                       size_t bytes, int root, CudaStream stream) override;
  CudaStatus groupBegin() override;
  CudaStatus groupEnd() override;
  CudaStatus send(CudaCommunicator communicator, const void *from, size_t bytes,
                  int peer, CudaStream stream) override;
  CudaStatus receive(CudaCommunicator communicator, void *to, size_t bytes,
                     int peer, CudaStream stream) override;

  void beginRange(const char *name) override;
  void endRange() override;

private:
  struct LiveStream;
  struct LiveEvent;
  // A plan of cuBLASLt or cuDNN, and the workspace that each call overwrites.
  template <typename Plan> struct LibraryPlan {
    Plan plan;
    size_t workspaceBytes;
  };
  // A product, and which of the emulation's algorithms computes it.
  struct EmulatedGemm {
    CudaGemmShape shape;
    int algorithm = 0;
  };
  // An operand of a call, with the bytes that the call may touch.
  struct Buffer {
    const void *memory;
    int64_t bytes;
    const char *name;
  };
  struct Registration {
    std::shared_ptr<NcclCommunicator> communicator;
    const void *memory;
    size_t bytes;
  };

  // That of the calling thread, which selectDevice has chosen.
  Device &currentDevice();
  // Adds work to a stream, or to the capture that it takes part in. If `bound`,
  // the stream must belong to the calling thread's device, as kernels require.
  CudaStatus submit(CudaStream stream, bool bound, Work work);
  CudaStatus submitLocked(LiveStream &stream, Work work);
  // Refuses a call if the calling thread captures, and invalidates the capture.
  CudaStatus refuseInCapture(const char *call);
  // Refuses a call, and invalidates the capture whose rule it broke. The caller
  // holds `mutex`, as for submitLocked and leaveCapture.
  CudaStatus spoil(Capture &capture, CudaStatus status,
                   const std::string &detail);
  // Returns the streams of a capture to normal, and ends it.
  void leaveCapture(const Capture &capture);
  // `call` names the function of the table, for messages.
  CudaStatus allocate(void *&memory, size_t bytes, int owner, const char *call);
  // Returns cudaOk if kernels and libraries on the current device may access
  // the bytes.
  CudaStatus checkBuffer(const void *memory, size_t bytes, const char *what);
  // `handle` becomes the plan's; `choice` says what a real library would have
  // chosen.
  template <typename Plan>
  CudaStatus addPlan(Handles<LibraryPlan<Plan>> &handles, const Plan &plan,
                     size_t workspaceBytes, void *&handle, CudaChoice &choice);
  template <typename Plan>
  CudaStatus removePlan(Handles<LibraryPlan<Plan>> &handles,
                        const void *handle);
  // Checks the memory that a plan accesses, and enqueues it.
  template <typename Plan, typename Run>
  CudaStatus
  call(Handles<LibraryPlan<Plan>> &handles, const void *handle,
       const std::function<std::vector<Buffer>(const Plan &)> &buffers,
       void *workspace, CudaStream stream, Run run);
  // Enqueues `work` on the stream. Fails unless all ranks have joined.
  CudaStatus collective(CudaCommunicator communicator, CudaStream stream,
                        std::function<void(NcclCommunicator &)> work);
  CudaStatus checkCollective(CudaCommunicator communicator, const void *shard,
                             const void *whole, size_t shardBytes);
  // Refuses a rank that the communicator does not have.
  CudaStatus checkRank(CudaCommunicator communicator, int rank);
  // Ends the registrations of a communicator that is destroyed or aborted. The
  // caller holds `mutex`.
  void forgetRegistrations(const NcclCommunicator &communicator);
  // Adds a send or receive to the open group, or enqueues it alone.
  CudaStatus transfer(CudaCommunicator communicator, const Transfer &transfer,
                      CudaStream stream);

  const Settings settings;
  Faults faults;
  Memory memory;
  std::vector<std::unique_ptr<Device>> devices;
  // Guards everything below. Never held while work runs.
  std::mutex mutex;
  std::vector<std::shared_ptr<Capture>> captures; // under way
  const fsdpc_program *program = nullptr;
  Handles<LiveEvent> events;
  Handles<LibraryPlan<EmulatedGemm>> gemms;
  Handles<LibraryPlan<ConvolutionPlan>> convolutions;
  Handles<LibraryPlan<AttentionPlan>> attentions;
  Handles<Registration> registrations;
  Handles<NcclCommunicator> communicators;
  Handles<Graph> graphs;
  Handles<LiveStream> streams; // last member, since its work uses all others
};

// The emulation that cudaApi() returns. Made on first use, never destroyed.
Emulation &theEmulation();

} // namespace fsdpc::runtime::emulation

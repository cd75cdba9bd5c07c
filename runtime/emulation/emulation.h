// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
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
#include <set>
#include <string>
#include <vector>

namespace fsdpc::runtime::emulation {

/// Counts of objects that are alive, for tests that look for leaks.
struct LiveObjects {
  size_t deviceBytes = 0, pinnedBytes = 0;
  size_t streams = 0, events = 0, graphs = 0, plans = 0, communicators = 0;
};

/// Tests make their own; a program has one (theEmulation). Any thread may call
/// it. A refused call leaves a detail that errorText adds on the same thread.
class Emulation : public CudaApi {
public:
  /// Makes the devices, and applies a fault of the settings to all calls.
  explicit Emulation(const Settings &settings);
  LiveObjects alive();

  std::string label() const override { return "emulated"; }
  std::string errorText(CudaStatus status) override;

#include "runtime/cuda/api_calls.inc"

private:
  struct LiveStream;
  struct LiveEvent;
  /// A plan of cuBLASLt or cuDNN, and the workspace that each call overwrites.
  template <typename Plan> struct LibraryPlan {
    Plan plan;
    size_t workspaceBytes;
  };
  /// A product, and which of the emulation's algorithms computes it.
  struct EmulatedGemm {
    CudaGemmShape shape;
    int algorithm = 0;
  };
  /// An operand of a call, with the bytes that the call may touch.
  struct Buffer {
    const void *memory;
    int64_t bytes;
    const char *name;
  };
  struct Registration {
    std::shared_ptr<NcclCommunicator> communicator;
    const void *memory;
    size_t bytes;
    bool isWindow;
  };

  /// That of the calling thread, which selectDevice has chosen.
  Device &currentDevice();
  /// Adds work to a stream, or to the capture that it takes part in. If
  /// `bound`, the stream must belong to the calling thread's device, as kernels
  /// require.
  CudaStatus submit(CudaStream stream, bool bound, Work work);
  CudaStatus submitLocked(LiveStream &stream, Work work);
  /// Refuses a call if the calling thread captures, and invalidates the
  /// capture.
  CudaStatus refuseInCapture(const char *call);
  /// Refuses a call, and invalidates the capture whose rule it broke. The
  /// caller holds `mutex`, as for submitLocked and leaveCapture.
  CudaStatus spoil(Capture &capture, CudaStatus status,
                   const std::string &detail);
  /// Returns the streams of a capture to normal, and ends it.
  void leaveCapture(const Capture &capture);
  /// `call` names the function of the table, for messages.
  CudaStatus allocate(void *&memory, size_t bytes, int owner, const char *call);
  /// Returns cudaOk if kernels and libraries on the current device may access
  /// the bytes.
  CudaStatus checkBuffer(const void *memory, size_t bytes, const char *what);
  /// `handle` becomes the plan's; `choice` says what a real library would have
  /// chosen.
  template <typename Plan>
  CudaStatus addPlan(Handles<LibraryPlan<Plan>> &handles, const Plan &plan,
                     size_t workspaceBytes, void *&handle, CudaChoice &choice);
  template <typename Plan>
  CudaStatus removePlan(Handles<LibraryPlan<Plan>> &handles,
                        const void *handle);
  /// Checks the memory that a plan accesses, and enqueues it.
  template <typename Plan, typename Run>
  CudaStatus
  call(Handles<LibraryPlan<Plan>> &handles, const void *handle,
       const std::function<std::vector<Buffer>(const Plan &)> &buffers,
       void *workspace, CudaStream stream, Run run);
  /// Enqueues `work` on the stream. Fails unless all ranks have joined.
  CudaStatus collective(CudaCommunicator communicator, CudaStream stream,
                        std::function<void(NcclCommunicator &)> work);
  CudaStatus checkCollective(CudaCommunicator communicator, const void *shard,
                             const void *whole, size_t shardBytes);
  /// Adds a registration, once all bytes are known to be the device's.
  CudaStatus addRegistration(CudaCommunicator communicator, const void *memory,
                             size_t bytes, bool isWindow, void *&handle);
  CudaStatus removeRegistration(CudaCommunicator communicator,
                                const void *handle, bool isWindow);
  /// Returns the offset of memory in a window of the communicator; a number
  /// that none has if it lies in no window.
  uint64_t placeInWindow(CudaCommunicator communicator, const void *memory);
  /// Refuses a rank that the communicator does not have.
  CudaStatus checkRank(CudaCommunicator communicator, int rank);
  /// Ends the registrations of a communicator that is destroyed or aborted. The
  /// caller holds `mutex`.
  void forgetRegistrations(const NcclCommunicator &communicator);
  /// Adds a send or receive to the open group, or enqueues it alone.
  CudaStatus transfer(CudaCommunicator communicator, const Transfer &transfer,
                      CudaStream stream);

  const Settings settings;
  Faults faults;
  Memory memory;
  std::vector<std::unique_ptr<Device>> devices;
  /// Guards everything below. Never held while work runs.
  std::mutex mutex;
  std::vector<std::shared_ptr<Capture>> captures; ///< under way
  const fsdpc_program *program = nullptr;
  Handles<LiveEvent> events;
  Handles<LibraryPlan<EmulatedGemm>> gemms;
  Handles<LibraryPlan<ConvolutionPlan>> convolutions;
  Handles<LibraryPlan<AttentionPlan>> attentions;
  Handles<Registration> registrations;
  std::set<const void *> shared; ///< what allocateShared returned
  Handles<NcclCommunicator> communicators;
  Handles<Graph> graphs;
  Handles<LiveStream> streams; ///< last member, since its work uses all others
};

/// The emulation that cudaApi() returns. Made on first use, never destroyed.
Emulation &theEmulation();

} // namespace fsdpc::runtime::emulation

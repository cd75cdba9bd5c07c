// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives over NCCL. Communicators are nonblocking, so that a rank whose
// peers do not answer can still abort. In this mode NCCL may hand a collective
// to its stream some time after the call has returned. What this rank enqueues
// next must run after it, so each call waits until that has happened.
#include "runtime/cuda/real_api.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <nccl.h>
#include <thread>
#include <utility>

// A library from before 2.27 lacks them. The program still loads then, and does
// not call them (nccl_memory.cpp).
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister

namespace fsdpc::runtime {

namespace {

CudaStatus checked(ncclResult_t result) {
  if (result == ncclInProgress)
    return cudaInProgress;
  return result == ncclSuccess ? cudaOk : ncclCodes + int(result);
}

struct NcclChannel {
  ncclComm_t comm = nullptr;
  // The communicator whose split is under way, until when `comm` is null.
  NcclChannel *parent = nullptr;
  // The watchdog's thread may set it while the rank's own thread is in
  // settled(). NCCL frees the communicator then.
  std::atomic<bool> aborted{false};
  // NCCL allows one thread at a time per communicator, also when asking for its
  // state, which completes calls that are under way.
  std::mutex mutex;
};

NcclChannel &of(CudaCommunicator communicator) {
  return *static_cast<NcclChannel *>(communicator);
}

// Does not ask NCCL about an aborted communicator, since NCCL has freed it. A
// split runs as a call of the parent: NCCL has written the new handle once that
// call is complete.
CudaStatus stateOf(NcclChannel &communicator) {
  std::lock_guard<std::mutex> lock(communicator.mutex);
  if (communicator.aborted)
    return checked(ncclRemoteError);
  if (communicator.parent) {
    if (CudaStatus state = stateOf(*communicator.parent))
      return state;
    communicator.parent = nullptr;
  }
  ncclResult_t state = ncclSuccess;
  ncclResult_t asked = ncclCommGetAsyncError(communicator.comm, &state);
  return checked(asked == ncclSuccess ? state : asked);
}

// Blocks until the last call has been handed to its stream.
CudaStatus settled(NcclChannel &communicator, ncclResult_t result) {
  if (result != ncclInProgress)
    return checked(result);
  for (;;) {
    CudaStatus state = stateOf(communicator);
    if (state != cudaInProgress)
      return state;
    std::this_thread::sleep_for(std::chrono::microseconds(5));
  }
}

// The group that the calling thread has open.
struct Group {
  bool open = false;
  NcclChannel *member = nullptr; // a group uses one communicator
};
// Per thread, as in NCCL itself.
thread_local Group group;

// Runs one NCCL call. Inside a group it is handed to the stream at the group's
// end, so it does not wait.
template <typename Call>
CudaStatus collective(CudaCommunicator handle, const Call &call) {
  NcclChannel &communicator = of(handle);
  ncclResult_t result = ncclSuccess;
  {
    std::lock_guard<std::mutex> lock(communicator.mutex);
    if (communicator.aborted)
      return checked(ncclRemoteError);
    result = call(communicator.comm);
  }
  if (!group.open)
    return settled(communicator, result);
  group.member = &communicator;
  return result == ncclInProgress ? cudaOk : checked(result);
}

cudaStream_t real(CudaStream stream) {
  return static_cast<cudaStream_t>(stream);
}

ncclDataType_t typeOf(WireType type) {
  return type == WireType::f32    ? ncclFloat32
         : type == WireType::bf16 ? ncclBfloat16
                                  : ncclFloat16;
}

// The gathers and reductions of a rank meet on parallel branches of a graph,
// where nothing orders the two communicators. Two ranks that run them in
// different orders would wait for each other for ever, so NCCL is told to keep
// the order of the host's calls. It reads the variable at its first use, and
// knows it from 2.26 on.
void orderCommunicators() {
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
}

} // namespace

std::string describeNccl(int status) {
  const char *last = ncclGetLastError(nullptr);
  std::string text = std::string("NCCL: ") +
                     ncclGetErrorString(static_cast<ncclResult_t>(status));
  if (last && *last)
    text += std::string("; ") + last;
  // Errors are one line.
  return text.substr(0, text.find('\n'));
}

CudaStatus RealCudaApi::ncclVersion(int &version) {
  return checked(ncclGetVersion(&version));
}

CudaStatus RealCudaApi::allocateShared(void *&memory, size_t bytes) {
  return checked(ncclMemAlloc(&memory, bytes));
}

CudaStatus RealCudaApi::freeShared(void *memory) {
  return checked(ncclMemFree(memory));
}

CudaStatus RealCudaApi::makeNcclId(NcclId &id) {
  static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));
  orderCommunicators();
  ncclUniqueId made;
  ncclResult_t result = ncclGetUniqueId(&made);
  memcpy(id.data(), made.internal, id.size());
  return checked(result);
}

CudaStatus RealCudaApi::initCommunicator(CudaCommunicator &communicator,
                                         int rank, int size, const NcclId &id,
                                         const NcclConfig &wanted) {
  orderCommunicators();
  ncclUniqueId taken;
  memcpy(taken.internal, id.data(), id.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // Every call may then return ncclInProgress, which settled() waits out.
  config.blocking = 0;
  if (wanted.maxCtas > 0)
    config.maxCTAs = wanted.maxCtas;
  if (wanted.zeroCtas)
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  auto made = std::make_unique<NcclChannel>();
  ncclResult_t result =
      ncclCommInitRankConfig(&made->comm, size, taken, rank, &config);
  if (result != ncclSuccess && result != ncclInProgress)
    return checked(result);
  communicator = made.release();
  return cudaOk;
}

// Inherits the configuration, so the new communicator is nonblocking, too. Its
// ranks keep their order, since all give the same key.
CudaStatus RealCudaApi::splitCommunicator(CudaCommunicator &communicator,
                                          CudaCommunicator parent, int color) {
  NcclChannel &whole = of(parent);
  auto made = std::make_unique<NcclChannel>();
  made->parent = &whole;
  std::lock_guard<std::mutex> lock(whole.mutex);
  if (whole.aborted)
    return checked(ncclRemoteError);
  ncclResult_t result = ncclCommSplit(whole.comm, color, /*key=*/0, &made->comm,
                                      /*config=*/nullptr);
  if (result != ncclSuccess && result != ncclInProgress)
    return checked(result);
  communicator = made.release();
  return cudaOk;
}

CudaStatus RealCudaApi::communicatorState(CudaCommunicator communicator) {
  return stateOf(of(communicator));
}

// The handle itself stays, for threads that are about to ask for its state. The
// parent's abort ends a split that is under way.
CudaStatus RealCudaApi::abortCommunicator(CudaCommunicator communicator) {
  NcclChannel &aborted = of(communicator);
  std::lock_guard<std::mutex> lock(aborted.mutex);
  if (aborted.aborted.exchange(true) || aborted.parent)
    return cudaOk;
  return checked(ncclCommAbort(aborted.comm));
}

// Finalize completes what is enqueued; an aborted communicator is gone already,
// and one that cannot be finalized is aborted.
CudaStatus RealCudaApi::destroyCommunicator(CudaCommunicator communicator) {
  std::unique_ptr<NcclChannel> ended(&of(communicator));
  if (ended->aborted || ended->parent)
    return cudaOk;
  CudaStatus status = settled(*ended, ncclCommFinalize(ended->comm));
  if (status == cudaOk)
    return checked(ncclCommDestroy(ended->comm));
  ncclCommAbort(ended->comm);
  return status;
}

CudaStatus RealCudaApi::registerMemory(CudaCommunicator communicator,
                                       void *memory, size_t bytes,
                                       void *&registration) {
  registration = nullptr;
  return collective(communicator, [&](ncclComm_t comm) {
    return ncclCommRegister(comm, memory, bytes, &registration);
  });
}

CudaStatus RealCudaApi::deregisterMemory(CudaCommunicator communicator,
                                         void *registration) {
  if (!registration)
    return cudaOk;
  return collective(communicator, [&](ncclComm_t comm) {
    return ncclCommDeregister(comm, registration);
  });
}

CudaStatus RealCudaApi::registerWindow(CudaCommunicator communicator,
                                       void *memory, size_t bytes,
                                       void *&window) {
  ncclWindow_t made = nullptr;
  CudaStatus status = collective(communicator, [&](ncclComm_t comm) {
    return ncclCommWindowRegister(comm, memory, bytes, &made,
                                  NCCL_WIN_COLL_SYMMETRIC);
  });
  window = made;
  return status;
}

CudaStatus RealCudaApi::deregisterWindow(CudaCommunicator communicator,
                                         void *window) {
  return collective(communicator, [&](ncclComm_t comm) {
    return ncclCommWindowDeregister(comm, static_cast<ncclWindow_t>(window));
  });
}

// As bytes, since a gather does not compute.
CudaStatus RealCudaApi::allGather(CudaCommunicator communicator,
                                  const void *shard, void *whole, size_t bytes,
                                  CudaStream stream) {
  return collective(communicator, [&](ncclComm_t comm) {
    return ncclAllGather(shard, whole, bytes, ncclInt8, comm, real(stream));
  });
}

CudaStatus RealCudaApi::reduceScatter(CudaCommunicator communicator,
                                      const void *whole, void *shard,
                                      size_t elements, WireType type,
                                      CudaStream stream) {
  return collective(communicator, [&](ncclComm_t comm) {
    return ncclReduceScatter(whole, shard, elements, typeOf(type), ncclSum,
                             comm, real(stream));
  });
}

CudaStatus RealCudaApi::allReduce(CudaCommunicator communicator, float *values,
                                  size_t elements, CudaStream stream) {
  return collective(communicator, [&](ncclComm_t comm) {
    return ncclAllReduce(values, values, elements, ncclFloat32, ncclSum, comm,
                         real(stream));
  });
}

CudaStatus RealCudaApi::reduce(CudaCommunicator communicator,
                               const void *values, void *sum, size_t elements,
                               WireType type, int root, CudaStream stream) {
  return collective(communicator, [&](ncclComm_t comm) {
    return ncclReduce(values, sum, elements, typeOf(type), ncclSum, root, comm,
                      real(stream));
  });
}

CudaStatus RealCudaApi::broadcast(CudaCommunicator communicator, void *values,
                                  size_t bytes, int root, CudaStream stream) {
  return collective(communicator, [&](ncclComm_t comm) {
    return ncclBroadcast(values, values, bytes, ncclInt8, root, comm,
                         real(stream));
  });
}

CudaStatus RealCudaApi::groupBegin() {
  group = {true, nullptr};
  return checked(ncclGroupStart());
}

CudaStatus RealCudaApi::groupEnd() {
  // Cleared first, so that a failed group does not swallow later calls.
  NcclChannel *member = std::exchange(group, {}).member;
  // A group without calls has no communicator to wait for.
  if (!member)
    return checked(ncclGroupEnd());
  ncclResult_t result;
  {
    std::lock_guard<std::mutex> lock(member->mutex);
    result = ncclGroupEnd();
  }
  return settled(*member, result);
}

CudaStatus RealCudaApi::send(CudaCommunicator communicator, const void *from,
                             size_t bytes, int peer, CudaStream stream) {
  return collective(communicator, [&](ncclComm_t comm) {
    return ncclSend(from, bytes, ncclInt8, peer, comm, real(stream));
  });
}

CudaStatus RealCudaApi::receive(CudaCommunicator communicator, void *to,
                                size_t bytes, int peer, CudaStream stream) {
  return collective(communicator, [&](ncclComm_t comm) {
    return ncclRecv(to, bytes, ncclInt8, peer, comm, real(stream));
  });
}

} // namespace fsdpc::runtime

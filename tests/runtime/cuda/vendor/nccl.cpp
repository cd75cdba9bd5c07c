// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A stand-in of NCCL for one rank. Communicators are nonblocking: a call may
// return ncclInProgress, and is over after the state was asked twice. Nothing
// is sent.
//
// Rules: NCCL User Guide 2.28, "Communicator Creation and Management
// Functions", "Error Handling and Communicator Abort", "Group Calls", "In-place
// Operations", "Using NCCL with CUDA Graphs", "User Buffer Registration", "NCCL
// API Supported Flags" and "Environment Variables".
#include "runtime/emulation/handles.h"
#include "tests/runtime/cuda/vendor/cudart_state.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <nccl.h>

using namespace fsdpc::vendor;

namespace {

constexpr int asksUntilDone = 2;

struct Comm {
  int rank = 0, size = 0, device = 0;
  int pending = 0; // times that the state must still be asked
  bool finalized = false, broken = false;
  int registrations = 0;          // windows among them
  ncclWindow_t *opened = nullptr; // a window, written when its call is over
  const void *windowed = nullptr; // its memory
  bool isUsed = false;            // by a call on a stream
  ncclComm_t *child = nullptr;    // of a split, written when it is over
  std::shared_ptr<Comm> made;
};

std::mutex mutex;
fsdpc::runtime::emulation::Handles<Comm> comms;
fsdpc::runtime::emulation::Handles<Comm *> registrations, windows;
// The memory that ncclMemAlloc returned, with the number of its open windows.
std::map<const void *, int> allocated;
thread_local int groups = 0; // open groups of the thread
thread_local Comm *grouped = nullptr;

// "After a call has returned ncclInProgress, no other call may be made before
// ncclCommGetAsyncError says that it is done."
std::shared_ptr<Comm> usable(ncclComm_t handle, const char *function) {
  auto comm = comms.find(handle);
  bool idle = comm && !comm->finalized && (comm->pending == 0 || groups > 0);
  return require(idle, function, "a live communicator without a pending call")
             ? comm
             : nullptr;
}

ncclResult_t begin(Comm &comm) {
  comm.isUsed = true;
  if (groups > 0) {
    grouped = &comm;
    return ncclInProgress;
  }
  comm.pending = asksUntilDone;
  return ncclInProgress;
}

size_t widthOf(ncclDataType_t type) {
  return type == ncclInt8 ? 1 : type == ncclBfloat16 ? 2 : 4;
}

// "The stream must belong to the communicator's device"; buffers are memory
// that the device can access.
bool checkBuffers(const Comm &comm, const void *from, size_t sent,
                  const void *to, size_t received, size_t width,
                  cudaStream_t stream, const char *function) {
  auto aligned = [&](const void *at) {
    return reinterpret_cast<uintptr_t>(at) % width == 0;
  };
  return require(deviceOf(stream) == comm.device &&
                     currentDevice() == comm.device,
                 function, "a live stream of the communicator's device") &&
         require(sent > 0 && aligned(from) && aligned(to) &&
                     spans(from, sent, comm.device) &&
                     spans(to, received, comm.device),
                 function, "aligned buffers within memory of the device");
}

// "In place" means the rank's own part of the larger buffer; any other overlap
// is undefined.
bool overlapsBadly(const void *part, size_t bytes, const void *whole, int rank,
                   int size) {
  auto *begin = static_cast<const char *>(whole);
  auto *own = static_cast<const char *>(part);
  bool apart = own + bytes <= begin || own >= begin + size_t(size) * bytes;
  return !apart && own != begin + size_t(rank) * bytes;
}

} // namespace

extern "C" {

const char *ncclGetErrorString(ncclResult_t) { return "an error"; }
const char *ncclGetLastError(ncclComm_t) { return "first line\nsecond line"; }

ncclResult_t ncclGetVersion(int *version) {
  if (fails(__func__))
    return ncclInternalError;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

// "The memory is that of the current device"; it is freed by ncclMemFree only.
ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
  if (fails(__func__))
    return ncclUnhandledCudaError;
  if (!require(bytes > 0, __func__, "the size is not 0") ||
      !allocateOnDevice(memory, bytes))
    return ncclInvalidArgument;
  std::lock_guard<std::mutex> lock(mutex);
  allocated[*memory] = 0;
  return ncclSuccess;
}

// "Registered windows must be deregistered before their memory is freed."
ncclResult_t ncclMemFree(void *memory) {
  bool failing = fails(__func__);
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto known = allocated.find(memory);
    if (!require(known != allocated.end() && known->second == 0, __func__,
                 "memory of ncclMemAlloc without a window"))
      return ncclInvalidArgument;
    allocated.erase(known);
  }
  releaseOnDevice(memory);
  return failing ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  if (fails(__func__))
    return ncclSystemError;
  memset(id->internal, 7, sizeof id->internal);
  return ncclSuccess;
}

// NCCL_LAUNCH_ORDER_IMPLICIT: without it, operations of two communicators on
// one device may deadlock when nothing else orders them. NCCL reads it once.
ncclResult_t ncclCommInitRankConfig(ncclComm_t *handle, int size,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  if (fails(__func__))
    return ncclSystemError;
  ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  if (!require(rank >= 0 && rank < size && id.internal[0] == 7, __func__,
               "a rank below the size, and an id") ||
      !require(config->magic == initial.magic &&
                   config->version == initial.version && config->blocking == 0,
               __func__, "an initialised, nonblocking configuration") ||
      !require((config->maxCTAs == NCCL_CONFIG_UNDEF_INT ||
                (config->maxCTAs > 0 && config->maxCTAs <= 64)) &&
                   (config->CTAPolicy == NCCL_CONFIG_UNDEF_INT ||
                    config->CTAPolicy == NCCL_CTA_POLICY_ZERO),
               __func__, "1 to 64 CTAs, and a policy of NCCL 2.28") ||
      !require(order && !strcmp(order, "1"), __func__,
               "NCCL_LAUNCH_ORDER_IMPLICIT is set before the first use"))
    return ncclInvalidArgument;
  auto comm = std::make_shared<Comm>();
  comm->rank = rank;
  comm->size = size;
  comm->device = currentDevice();
  comm->pending = asksUntilDone;
  std::lock_guard<std::mutex> lock(mutex);
  *handle = static_cast<ncclComm_t>(comms.add(comm));
  return ncclInProgress;
}

// Collective over the parent, which must be idle: "there should not be any
// outstanding NCCL operations on the comm". A color is not negative. Without a
// configuration the child has the parent's. "The value of the child will not be
// filled until the state of the parent is ncclSuccess" (NVIDIA/nccl, issue
// 1472), and lies where the caller has said, until then.
ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key,
                           ncclComm_t *child, ncclConfig_t *config) {
  if (fails(__func__))
    return ncclSystemError;
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, __func__);
  if (!comm ||
      !require(groups == 0 && color >= 0 && key == 0 && !*child && !config,
               __func__,
               "a color from 0, one key, a place for the child, the parent's "
               "configuration, and no open group") ||
      !require(!comm->isUsed && comm->registrations == 0, __func__,
               "a communicator that nothing has used yet"))
    return ncclInvalidArgument;
  auto made = std::make_shared<Comm>();
  // Half of the ranks, as the other ranks would say. Equal keys keep the order.
  made->size = (comm->size + 1) / 2;
  made->rank = comm->rank / 2;
  made->device = comm->device;
  made->pending = asksUntilDone;
  comm->child = child;
  comm->made = std::move(made);
  comm->pending = asksUntilDone;
  return ncclInProgress;
}

// A failure is one that the communicator met on its own.
ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *state) {
  bool failing = fails(__func__);
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = comms.find(handle);
  if (!require(bool(comm), __func__, "a live communicator"))
    return ncclInvalidArgument;
  if (comm->pending > 0)
    --comm->pending;
  comm->broken |= failing; // for good
  if (comm->pending == 0 && comm->child && !comm->broken)
    *std::exchange(comm->child, nullptr) =
        static_cast<ncclComm_t>(comms.add(std::move(comm->made)));
  if (comm->pending == 0 && comm->opened && !comm->broken)
    *std::exchange(comm->opened, nullptr) = static_cast<ncclWindow_t>(
        windows.add(std::make_shared<Comm *>(comm.get())));
  *state = comm->broken        ? ncclRemoteError
           : comm->pending > 0 ? ncclInProgress
                               : ncclSuccess;
  return ncclSuccess;
}

// Aborting also frees what was registered.
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  bool failing = fails(__func__);
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = comms.remove(handle);
  if (!require(bool(comm), __func__, "a live communicator"))
    return ncclInvalidArgument;
  if (comm->windowed)
    allocated[comm->windowed] = 0;
  return failing ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  if (fails(__func__))
    return ncclSystemError;
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, __func__);
  if (!comm ||
      !require(comm->registrations == 0 && !isHeld(comm.get()), __func__,
               "no registered memory, and no graph with "
               "its calls"))
    return ncclInvalidUsage;
  comm->finalized = true;
  comm->pending = asksUntilDone;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  bool failing = fails(__func__);
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = comms.remove(handle);
  if (!require(comm && comm->finalized && comm->pending == 0, __func__,
               "a communicator whose finalization is complete"))
    return ncclInvalidUsage;
  return failing ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void *memory,
                              size_t bytes, void **registration) {
  if (fails(__func__))
    return ncclSystemError;
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, __func__);
  if (!comm || !require(spans(memory, bytes, comm->device), __func__,
                        "memory of the communicator's device"))
    return ncclInvalidArgument;
  ++comm->registrations;
  *registration = registrations.add(std::make_shared<Comm *>(comm.get()));
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void *registration) {
  bool failing = fails(__func__);
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, __func__);
  auto known = registrations.remove(registration);
  if (!comm || !require(known && *known == comm.get(), __func__,
                        "a registration of this communicator"))
    return ncclInvalidArgument;
  --comm->registrations;
  return failing ? ncclSystemError : ncclSuccess;
}

// "buff must be allocated by ncclMemAlloc or as VMM memory", aligned to
// NCCL_WIN_REQUIRED_ALIGNMENT. Of a nonblocking communicator "the handle may
// remain 0 until ncclCommGetAsyncError reports success".
ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void *memory,
                                    size_t bytes, ncclWindow_t *window,
                                    int flags) {
  if (fails(__func__))
    return ncclSystemError;
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, __func__);
  auto known = allocated.find(memory);
  bool aligned =
      reinterpret_cast<uintptr_t>(memory) % NCCL_WIN_REQUIRED_ALIGNMENT == 0;
  if (!comm ||
      !require(known != allocated.end() && aligned &&
                   spans(memory, bytes, comm->device),
               __func__, "aligned memory of ncclMemAlloc") ||
      !require(flags == NCCL_WIN_COLL_SYMMETRIC && groups == 0, __func__,
               "a symmetric window, outside of groups"))
    return ncclInvalidArgument;
  ++known->second;
  ++comm->registrations;
  comm->windowed = memory;
  comm->opened = window;
  comm->pending = asksUntilDone;
  return ncclInProgress;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t window) {
  bool failing = fails(__func__);
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, __func__);
  auto known = windows.remove(window);
  if (!comm || !require(known && *known == comm.get(), __func__,
                        "a window of this communicator"))
    return ncclInvalidArgument;
  --comm->registrations;
  --allocated[comm->windowed];
  return failing ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count,
                           ncclDataType_t type, ncclComm_t handle,
                           cudaStream_t stream) {
  if (fails(__func__))
    return ncclSystemError;
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, __func__);
  size_t width = widthOf(type), bytes = count * width;
  if (!comm || !checkBuffers(*comm, from, bytes, to, bytes * size_t(comm->size),
                             width, stream, __func__))
    return ncclInvalidArgument;
  if (!require(!overlapsBadly(from, bytes, to, comm->rank, comm->size),
               __func__, "in place, or apart"))
    return ncclInvalidArgument;
  enqueue(stream, comm.get());
  return begin(*comm);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t handle, cudaStream_t stream) {
  if (fails(__func__))
    return ncclSystemError;
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, __func__);
  size_t width = widthOf(type), bytes = count * width;
  bool known = op == ncclSum && (type == ncclFloat32 || type == ncclBfloat16 ||
                                 type == ncclFloat16);
  if (!comm || !require(known, __func__, "a sum of f32, bf16 or f16") ||
      !checkBuffers(*comm, from, bytes * size_t(comm->size), to, bytes, width,
                    stream, __func__))
    return ncclInvalidArgument;
  if (!require(!overlapsBadly(to, bytes, from, comm->rank, comm->size),
               __func__, "in place, or apart"))
    return ncclInvalidArgument;
  enqueue(stream, comm.get());
  return begin(*comm);
}

// All ranks have the whole sum, in place or apart.
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count,
                           ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t handle, cudaStream_t stream) {
  if (fails(__func__))
    return ncclSystemError;
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, __func__);
  size_t bytes = count * widthOf(type);
  if (!comm ||
      !require(op == ncclSum && type == ncclFloat32, __func__,
               "a sum of f32") ||
      !checkBuffers(*comm, from, bytes, to, bytes, 4, stream, __func__) ||
      !require(from == to, __func__, "in place"))
    return ncclInvalidArgument;
  enqueue(stream, comm.get());
  return begin(*comm);
}

// "recvbuff may be NULL on all calls except for root device."
ncclResult_t ncclReduce(const void *from, void *to, size_t count,
                        ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t handle, cudaStream_t stream) {
  if (fails(__func__))
    return ncclSystemError;
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, __func__);
  size_t width = widthOf(type), bytes = count * width;
  bool known = op == ncclSum && (type == ncclFloat32 || type == ncclBfloat16);
  if (!comm || !require(known, __func__, "a sum of f32 or bf16") ||
      !require(root >= 0 && root < comm->size && (to || root != comm->rank),
               __func__, "a root of the communicator, which has a sum") ||
      !checkBuffers(*comm, from, bytes, to ? to : from, bytes, width, stream,
                    __func__))
    return ncclInvalidArgument;
  enqueue(stream, comm.get());
  return begin(*comm);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count,
                           ncclDataType_t type, int root, ncclComm_t handle,
                           cudaStream_t stream) {
  if (fails(__func__))
    return ncclSystemError;
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, __func__);
  size_t width = widthOf(type), bytes = count * width;
  if (!comm ||
      !require(root >= 0 && root < comm->size, __func__,
               "a root of the communicator") ||
      !checkBuffers(*comm, from, bytes, to, bytes, width, stream, __func__))
    return ncclInvalidArgument;
  enqueue(stream, comm.get());
  return begin(*comm);
}

ncclResult_t ncclGroupStart() {
  if (fails(__func__))
    return ncclSystemError;
  ++groups;
  return ncclSuccess;
}

// The calls of a nonblocking group are pending after its end.
ncclResult_t ncclGroupEnd() {
  bool failing = fails(__func__);
  if (!require(groups > 0, __func__, "an open group"))
    return ncclInvalidUsage;
  std::lock_guard<std::mutex> lock(mutex);
  Comm *member = --groups == 0 ? std::exchange(grouped, nullptr) : nullptr;
  if (failing)
    return ncclSystemError;
  return member ? begin(*member) : ncclSuccess;
}

// Sends and receives of one exchange are fused by a group, or would deadlock.
static ncclResult_t message(const void *buffer, size_t count,
                            ncclDataType_t type, int peer, ncclComm_t handle,
                            cudaStream_t stream, const char *function) {
  std::lock_guard<std::mutex> lock(mutex);
  auto comm = usable(handle, function);
  size_t width = widthOf(type), bytes = count * width;
  if (!comm || !checkBuffers(*comm, buffer, bytes, buffer, bytes, width, stream,
                             function))
    return ncclInvalidArgument;
  if (!require(groups > 0 && peer >= 0 && peer < comm->size, function,
               "within a group, with a rank of the communicator"))
    return ncclInvalidUsage;
  enqueue(stream, comm.get());
  return begin(*comm);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  return fails(__func__)
             ? ncclSystemError
             : message(from, count, type, peer, comm, stream, __func__);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return fails(__func__)
             ? ncclSystemError
             : message(to, count, type, peer, comm, stream, __func__);
}

} // extern "C"

std::string fsdpc::vendor::aliveInNccl() {
  std::lock_guard<std::mutex> lock(mutex);
  return comms.size() ? std::to_string(comms.size()) + " communicators; " : "";
}

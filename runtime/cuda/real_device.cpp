// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table over cudart: device, memory, streams, events, kernels and graphs,
// and names for profilers. Errors of a missing or old driver are explained,
// since they are what a user meets first.
#include "runtime/cuda/kernels/own.h"
#include "runtime/cuda/real_api.h"
#include "runtime/support/concat.h"

#include <cctype>
#include <cuda_runtime_api.h>
#include <mutex>
#include <nvtx3/nvToolsExt.h>

namespace fsdpc::runtime {

namespace {

// The handles of the table are the handles of cudart.
cudaStream_t real(CudaStream stream) {
  return static_cast<cudaStream_t>(stream);
}
cudaEvent_t realEvent(CudaEvent event) {
  return static_cast<cudaEvent_t>(event);
}

// Formats a version: 13000 becomes "13.0".
std::string versionText(int version) {
  return concat(version / 1000, ".", version % 1000 / 10);
}

// Explains why the driver cannot run this program.
std::string driverText() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (!driver)
    return "no NVIDIA driver found (libcuda.so.1 does not load); run on a "
           "machine with a GPU and a driver for CUDA " +
           versionText(runtime) + " or newer";
  return "the NVIDIA driver supports CUDA " + versionText(driver) +
         ", but the program requires " + versionText(runtime) +
         "; install a newer driver";
}

// Device memory that CUDA and NCCL take once a program runs. Estimates: kernels
// of some megabytes and a graph per kind of section; of a communicator, the
// buffers of some 30 channels to each neighbour.
constexpr size_t megabyte = size_t(1) << 20;
constexpr size_t laterBytes = 256 * megabyte;
constexpr size_t communicatorBytes = 384 * megabyte;

// The device code of this process. A cudaLibrary serves every device.
struct LoadedProgram {
  std::mutex mutex;
  cudaLibrary_t library = nullptr;
} loaded;

} // namespace

CudaApi &cudaApi() {
  // The first call to NVTX makes its table of functions, and the check whether
  // there is one is no atomic read: ranks on threads of a process would race.
  static RealCudaApi &api = []() -> RealCudaApi & {
    static RealCudaApi own;
    nvtxInitialize(nullptr);
    return own;
  }();
  return api;
}

// Codes are told apart by their offsets, the highest first.
std::string RealCudaApi::errorText(CudaStatus status) {
  if (status >= ncclCodes)
    return describeNccl(status - ncclCodes);
  if (status >= cudnnGraphCodes)
    return describeCudnnGraph(status - cudnnGraphCodes);
  if (status >= cudnnCodes)
    return describeCudnn(status - cudnnCodes);
  if (status >= cublasCodes)
    return describeCublas(status - cublasCodes);
  switch (status) {
  case cudaInProgress:
    return "NCCL: operation still in progress";
  case cudaRefused:
    return "the library does not support this plan";
  case cudaErrorInsufficientDriver:
    return driverText();
  case cudaErrorNoDevice:
    return "the NVIDIA driver reports no GPU; check CUDA_VISIBLE_DEVICES";
  case cudaErrorNoKernelImageForDevice:
    return "the program contains no kernels for this GPU; compile it with the "
           "GPU's architecture in --gpu-arch";
  default:
    return std::string("CUDA: ") +
           cudaGetErrorString(static_cast<cudaError_t>(status));
  }
}

// ---- device ----

CudaStatus RealCudaApi::deviceCount(int &count) {
  return cudaGetDeviceCount(&count);
}

CudaStatus RealCudaApi::selectDevice(int device) {
  return cudaSetDevice(device);
}

// The UUID tells GPUs apart across processes, whose ordinals may differ.
CudaStatus RealCudaApi::deviceInfo(CudaDeviceInfo &info) {
  int device = 0;
  char address[32] = "";
  cudaDeviceProp properties;
  cudaError_t status = cudaGetDevice(&device);
  if (!status)
    status = cudaGetDeviceProperties(&properties, device);
  if (!status)
    status = cudaDeviceGetPCIBusId(address, sizeof address, device);
  if (!status)
    status = cudaMemGetInfo(&info.freeBytes, &info.totalBytes);
  if (status)
    return status;
  info.name = properties.name;
  info.id.assign(properties.uuid.bytes, sizeof properties.uuid.bytes);
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  // sysfs writes it in lower case.
  info.pciAddress = address;
  for (char &digit : info.pciAddress)
    digit = char(tolower(digit));
  info.laterBytes = laterBytes;
  info.communicatorBytes = communicatorBytes;
  return cudaOk;
}

// ---- memory ----

CudaStatus RealCudaApi::allocateDevice(void *&memory, size_t bytes) {
  return cudaMalloc(&memory, bytes);
}
CudaStatus RealCudaApi::freeDevice(void *memory) { return cudaFree(memory); }
// Portable memory is pinned for every device of the process.
CudaStatus RealCudaApi::allocatePinned(void *&memory, size_t bytes) {
  return cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
}
CudaStatus RealCudaApi::freePinned(void *memory) {
  return cudaFreeHost(memory);
}
CudaStatus RealCudaApi::copy(void *to, const void *from, size_t bytes,
                             CudaStream stream) {
  // The driver infers the direction from the addresses.
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, real(stream));
}
CudaStatus RealCudaApi::fill(void *to, int byte, size_t bytes,
                             CudaStream stream) {
  return cudaMemsetAsync(to, byte, bytes, real(stream));
}

// ---- streams and events ----

// Nonblocking, so that the legacy default stream orders nothing.
CudaStatus RealCudaApi::createStream(CudaStream &stream, bool urgent) {
  int least = 0, greatest = 0;
  cudaError_t status = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  cudaStream_t created = nullptr;
  if (!status)
    status = cudaStreamCreateWithPriority(&created, cudaStreamNonBlocking,
                                          urgent ? greatest : least);
  stream = created;
  return status;
}
CudaStatus RealCudaApi::destroyStream(CudaStream stream) {
  return cudaStreamDestroy(real(stream));
}
CudaStatus RealCudaApi::synchronizeStream(CudaStream stream) {
  return cudaStreamSynchronize(real(stream));
}

// Without timing, which is cheaper to record; nobody reads times here.
CudaStatus RealCudaApi::createEvent(CudaEvent &event) {
  cudaEvent_t created = nullptr;
  cudaError_t status =
      cudaEventCreateWithFlags(&created, cudaEventDisableTiming);
  event = created;
  return status;
}
CudaStatus RealCudaApi::destroyEvent(CudaEvent event) {
  return cudaEventDestroy(realEvent(event));
}
CudaStatus RealCudaApi::recordEvent(CudaEvent event, CudaStream stream) {
  return cudaEventRecord(realEvent(event), real(stream));
}
CudaStatus RealCudaApi::waitEvent(CudaStream stream, CudaEvent event) {
  return cudaStreamWaitEvent(real(stream), realEvent(event), 0);
}
CudaStatus RealCudaApi::queryEvent(CudaEvent event, bool &done) {
  cudaError_t status = cudaEventQuery(realEvent(event));
  // "Not ready" is an answer, not an error.
  done = status == cudaSuccess;
  return status == cudaErrorNotReady ? cudaSuccess : status;
}

// ---- kernels ----

// Called by every rank of the process; the first one loads.
CudaStatus RealCudaApi::loadProgram(const fsdpc_program &program) {
  std::lock_guard<std::mutex> lock(loaded.mutex);
  // Programs of tests may have no kernels.
  if (loaded.library || !program.device_code)
    return cudaOk;
  return cudaLibraryLoadData(&loaded.library, program.device_code, nullptr,
                             nullptr, 0, nullptr, nullptr, 0);
}

// A cudaKernel_t serves every device of the process, and cudaLaunchKernel takes
// one in place of a function.
CudaStatus RealCudaApi::findKernel(const fsdpc_kernel &kernel,
                                   CudaFunction &function) {
  cudaKernel_t found = nullptr;
  cudaError_t status =
      cudaLibraryGetKernel(&found, loaded.library, kernel.name);
  function = found;
  return status;
}

CudaStatus RealCudaApi::launch(CudaFunction function, int64_t blocks,
                               int threads, void *const *buffers, int count,
                               CudaStream stream) {
  constexpr int most = 512; // a kernel's parameters are at most 4 KiB
  void *arguments[most];
  if (count > most || blocks > INT32_MAX)
    return cudaErrorInvalidConfiguration;
  for (int i = 0; i < count; ++i)
    // cudart wants the address of each argument, and an argument is a pointer
    // itself.
    arguments[i] = const_cast<void **>(&buffers[i]);
  return cudaLaunchKernel(function, dim3(unsigned(blocks)), dim3(threads),
                          arguments, 0, real(stream));
}

CudaStatus RealCudaApi::launchOwn(int kernel, int64_t blocks,
                                  const void *arguments, size_t,
                                  CudaStream stream) {
  void *argument[] = {const_cast<void *>(arguments)};
  return cudaLaunchKernel(ownKernels[size_t(kernel)], dim3(unsigned(blocks)),
                          dim3(ownThreads), argument, 0, real(stream));
}

// ---- graphs ----

// Relaxed, because threads of other ranks and of NCCL allocate during the
// capture.
CudaStatus RealCudaApi::beginCapture(CudaStream stream) {
  return cudaStreamBeginCapture(real(stream), cudaStreamCaptureModeRelaxed);
}

// Nodes keep the priorities of the streams on which they were captured.
CudaStatus RealCudaApi::endCapture(CudaStream stream, CudaGraph &graph) {
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t ready = nullptr;
  cudaError_t status = cudaStreamEndCapture(real(stream), &captured);
  if (!status)
    status = cudaGraphInstantiate(&ready, captured,
                                  cudaGraphInstantiateFlagUseNodePriority);
  if (!status)
    // Otherwise the first launch would upload it, within a step.
    status = cudaGraphUpload(ready, real(stream));
  if (captured)
    cudaGraphDestroy(captured);
  graph = ready;
  return status;
}

CudaStatus RealCudaApi::launchGraph(CudaGraph graph, CudaStream stream) {
  return cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), real(stream));
}
CudaStatus RealCudaApi::destroyGraph(CudaGraph graph) {
  return cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

// ---- names for profilers ----

void RealCudaApi::beginRange(const char *name) { nvtxRangePushA(name); }
void RealCudaApi::endRange() { nvtxRangePop(); }

} // namespace fsdpc::runtime

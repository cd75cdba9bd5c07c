// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table through which runtime/cuda talks to a GPU: cudart, cuBLASLt, cuDNN
// and NCCL as some forty functions on plain structs. The real side (real_api.h)
// forwards each to its library. The emulation implements them on host threads,
// so that everything else in runtime/cuda runs and is tested without a GPU.
//
// Threads of several ranks may call every function at the same time, each on
// its own handles. Functions that take a stream only enqueue. Functions return
// a status and never end the job; CudaContext::check does.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/comm/communicator.h"
#include "runtime/include/fsdpc.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// 0 if a call succeeded, otherwise a code that errorText explains. The codes
/// of each library have an offset of their own, so that one function explains
/// all.
using CudaStatus = int;
constexpr CudaStatus cudaOk = 0;
/// Returned by communicatorState: a nonblocking call is still under way.
constexpr CudaStatus cudaInProgress = -1;
/// Returned by planning: the library cannot run the plan, and
/// CudaChoice::algorithm says why. The caller has other means.
constexpr CudaStatus cudaRefused = -2;

/// Handles. Functions named after them create and destroy them.
using CudaStream = void *;
using CudaEvent = void *;
using CudaFunction = const void *; ///< a kernel of the program
using CudaGraph = void *;          ///< captured and instantiated
using CudaGemm = void *;
using CudaConvolution = void *;
using CudaAttention = void *;
using CudaCommunicator = void *;
using NcclId = std::array<char, 128>;
constexpr size_t sharedPageBytes = size_t(2) << 20;

struct CudaDeviceInfo {
  std::string name;         ///< "NVIDIA H200"
  int major = 0, minor = 0; ///< compute capability
  int multiprocessors = 0;
  std::string id; ///< identifies the device on the whole machine
  /// The device's PCI address as sysfs writes it, "0000:3b:00.0"; may be empty.
  std::string pciAddress;
  size_t freeBytes = 0, totalBytes = 0;
  /// Estimates of the device memory that the driver and the libraries take
  /// after a program has its own: for kernels that are loaded at their first
  /// launch, and for graphs; and for each communicator of several ranks.
  size_t laterBytes = 0, communicatorBytes = 0;
};

/// C[i] = A[i] · B[i] + beta · C[i] for `count` row-major products. Leading
/// dimensions and strides are in elements; a stride of 0 broadcasts. Sums are
/// in f32 (f64 for f64), without TF32. A bias, a row of C's type, is added
/// before the sum is rounded.
struct CudaGemmShape {
  int64_t m = 0, n = 0, k = 0;
  bool transposeA = false, transposeB = false; ///< A is stored k×m, B n×k
  int64_t lda = 0, ldb = 0, ldc = 0;
  int64_t count = 1, strideA = 0, strideB = 0, strideC = 0;
  std::string dtypeA, dtypeB, dtypeC; ///< "f32", "bf16", "f16", "f64"
  float beta = 0;                     ///< 0 or 1
  bool bias = false, addend = false;  ///< an addend, unless C itself (beta)
  std::string epilogue;               ///< as MatmulPlan::epilogue
};

/// The operands of one call, null where the shape has none. An addend has C's
/// strides, and so has GELU's input: `input` of "gelu_grad", or `extra` of
/// "gelu_extra". For "sum_lhs" and "sum_rhs" `extra` has m or n elements.
struct CudaGemmOperands {
  const void *a = nullptr, *b = nullptr;
  void *c = nullptr;
  const void *bias = nullptr, *addend = nullptr, *input = nullptr;
  void *extra = nullptr;
};

/// How a communicator is made. Its splits are made in the same way.
struct NcclConfig {
  int maxCtas = 0; ///< blocks that a collective may take; 0: NCCL's choice
  bool zeroCtas = false; ///< take none where copy engines can do it; NCCL 2.28
};

/// The library's choice for a plan.
struct CudaChoice {
  size_t workspaceBytes = 0; ///< per call, aligned to 256
  std::string algorithm;     ///< for the log
};

class CudaApi {
public:
  virtual ~CudaApi() = default;
  /// Printed in every line of output: "" or "emulated".
  virtual std::string label() const = 0;
  /// Explains a status in one line for an error message, with the name of the
  /// library that returned it.
  virtual std::string errorText(CudaStatus status) = 0;

  // ---- device: the one selected for the calling thread ----

  /// Counts the devices that this process may use. Fails if the driver is
  /// missing or older than the library.
  virtual CudaStatus deviceCount(int &count) = 0;
  /// Makes `device`, a number below the count, the calling thread's one. Every
  /// thread must select a device before it makes any other call: a new thread
  /// has device 0, whatever its creator had.
  virtual CudaStatus selectDevice(int device) = 0;
  /// Describes the selected device. The free bytes are those of this moment and
  /// change with other processes.
  virtual CudaStatus deviceInfo(CudaDeviceInfo &info) = 0;

  // ---- memory: the caller owns what is allocated, and frees it ----

  /// Allocates on the selected device, aligned to 256 bytes. The content is
  /// undefined. Fails if the device has too little room.
  virtual CudaStatus allocateDevice(void *&memory, size_t bytes) = 0;
  /// No work that uses the memory may be under way.
  virtual CudaStatus freeDevice(void *memory) = 0;
  /// Allocates host memory that never moves, which copies on a stream need:
  /// from other host memory they would block the caller.
  virtual CudaStatus allocatePinned(void *&memory, size_t bytes) = 0;
  virtual CudaStatus freePinned(void *memory) = 0;
  /// Copies between any two of device and pinned memory. The ranges must not
  /// overlap. Both must stay as they are until the stream gets past the copy.
  virtual CudaStatus copy(void *to, const void *from, size_t bytes,
                          CudaStream stream) = 0;
  /// Sets each of the bytes to the low eight bits of `byte`.
  virtual CudaStatus fill(void *to, int byte, size_t bytes,
                          CudaStream stream) = 0;

  // ---- order: streams run beside each other, and events order them ----

  /// Blocks of `urgent` streams are scheduled first.
  virtual CudaStatus createStream(CudaStream &stream, bool urgent) = 0;
  virtual CudaStatus destroyStream(CudaStream stream) = 0;
  /// Blocks the caller until the stream has run all that was enqueued. Returns
  /// the error of that work, if any; a device that has failed stays failed.
  virtual CudaStatus synchronizeStream(CudaStream stream) = 0;
  /// Events carry no times, so that recording one costs as little as possible.
  virtual CudaStatus createEvent(CudaEvent &event) = 0;
  virtual CudaStatus destroyEvent(CudaEvent event) = 0;
  /// Makes the event stand for all that the stream was given so far. Recording
  /// again replaces that; waits that were enqueued before keep the old meaning.
  virtual CudaStatus recordEvent(CudaEvent event, CudaStream stream) = 0;
  /// Lets the stream wait for the last record; the caller does not wait. An
  /// event that was never recorded is no reason to wait.
  virtual CudaStatus waitEvent(CudaStream stream, CudaEvent event) = 0;
  /// Sets `done` to true if the last record has been reached. Returns the error
  /// of earlier work on the device, if any.
  virtual CudaStatus queryEvent(CudaEvent event, bool &done) = 0;

  // ---- kernels ----

  /// Loads the program's device code for the calling thread's device. Fails if
  /// the code is for other architectures and holds no PTX for this one.
  virtual CudaStatus loadProgram(const fsdpc_program &program) = 0;
  /// Finds a kernel of the loaded program by its name. The handle is not to be
  /// destroyed.
  virtual CudaStatus findKernel(const fsdpc_kernel &kernel,
                                CudaFunction &function) = 0;
  /// `buffers` are the kernel's `count` arguments, one pointer each, which are
  /// copied. `threads` are those of a block. Errors of the kernel itself show
  /// in later calls only.
  virtual CudaStatus launch(CudaFunction function, int64_t blocks, int threads,
                            void *const *buffers, int count,
                            CudaStream stream) = 0;
  /// Launches a kernel of the runtime itself (runtime/cuda/kernels), given its
  /// number and its struct of arguments, which is copied.
  virtual CudaStatus launchOwn(int kernel, int64_t blocks,
                               const void *arguments, size_t bytes,
                               CudaStream stream) = 0;

  // ---- graphs: what is enqueued on `stream`, and on streams that join it by
  // events, between begin and end runs at launchGraph. A graph keeps the
  // addresses that were passed, not what lay there. Calls that allocate, free
  // or wait for the device are refused meanwhile, and end the capture. ----
  virtual CudaStatus beginCapture(CudaStream stream) = 0;
  virtual CudaStatus endCapture(CudaStream stream, CudaGraph &graph) = 0;
  virtual CudaStatus launchGraph(CudaGraph graph, CudaStream stream) = 0;
  virtual CudaStatus destroyGraph(CudaGraph graph) = 0;

  // ---- libraries: planning may be slow and allocate, calling may not ----

  /// Planning takes the first algorithm of the library's heuristic that needs
  /// at most `cap` bytes of workspace; attention takes what it needs. Products
  /// are always deterministic. `deterministic` excludes other algorithms that
  /// add in varying order. A plan may only be called on the thread that made
  /// it.
  virtual CudaStatus planGemm(const CudaGemmShape &shape, size_t cap,
                              CudaGemm &gemm, CudaChoice &choice) = 0;
  virtual CudaStatus gemm(CudaGemm gemm, const CudaGemmOperands &operands,
                          void *workspace, CudaStream stream) = 0;
  /// Plans are destroyed when no call of theirs is under way.
  virtual CudaStatus destroyGemm(CudaGemm gemm) = 0;
  /// Lists up to `most` algorithms for a planned product whose operands lie at
  /// multiples of 16 bytes, in the order of the library's heuristic, as codes
  /// of printable characters without spaces. A code keeps its meaning from run
  /// to run on the same kind of device. With `roundsParts`, products that split
  /// k may round their partial sums to the type of the result.
  virtual CudaStatus listGemms(CudaGemm gemm, size_t cap, int most,
                               bool roundsParts,
                               std::vector<std::string> &codes) = 0;
  /// Makes a plan use a listed algorithm for such operands. Returns cudaRefused
  /// and leaves the plan as it was if the code is none, of another version of
  /// the library, does not fit the product, or rounds partial sums without
  /// `roundsParts`.
  virtual CudaStatus chooseGemm(CudaGemm gemm, size_t cap, bool roundsParts,
                                const std::string &code,
                                CudaChoice &choice) = 0;
  virtual CudaStatus planConvolution(const ConvolutionPlan &plan, size_t cap,
                                     bool deterministic,
                                     CudaConvolution &convolution,
                                     CudaChoice &choice) = 0;
  /// Operands as in fsdpc_convolution.
  virtual CudaStatus convolution(CudaConvolution convolution, const void *x,
                                 const void *w, void *y, void *workspace,
                                 CudaStream stream) = 0;
  virtual CudaStatus destroyConvolution(CudaConvolution convolution) = 0;
  virtual CudaStatus planAttention(const AttentionPlan &plan,
                                   bool deterministic, CudaAttention &attention,
                                   CudaChoice &choice) = 0;
  /// Operands in the order of fsdpc_attention or fsdpc_attention_grad.
  virtual CudaStatus attention(CudaAttention attention,
                               const void *const *operands, void *workspace,
                               CudaStream stream) = 0;
  virtual CudaStatus destroyAttention(CudaAttention attention) = 0;

  // ---- collectives of one rank on one communicator. All of its ranks must
  // make the same calls in the same order, or they wait for each other for
  // ever; the watchdog (watchdog.h) ends such a job. Memory is device memory.
  // ----

  /// Returns NCCL's version as a number, 22809 for 2.28.9.
  virtual CudaStatus ncclVersion(int &version) = 0;
  /// Allocates device memory as NCCL likes it: what registerWindow takes, and
  /// NVLink multicasts reach. It takes whole pages of sharedPageBytes.
  virtual CudaStatus allocateShared(void *&memory, size_t bytes) = 0;
  /// No communicator may have the memory registered.
  virtual CudaStatus freeShared(void *memory) = 0;
  /// Makes the number by which the ranks of a communicator find each other. One
  /// rank makes it and sends it to the others, which no function here does.
  virtual CudaStatus makeNcclId(NcclId &id) = 0;
  /// Returns at once; communicatorState tells when it is done.
  virtual CudaStatus initCommunicator(CudaCommunicator &communicator, int rank,
                                      int size, const NcclId &id,
                                      const NcclConfig &config) = 0;
  /// Makes a communicator of the ranks of `parent` that give the same color, in
  /// their order. All ranks of `parent` call it in the same order, and none has
  /// calls under way. Returns at once; communicatorState of the new one tells
  /// when both may be used.
  virtual CudaStatus splitCommunicator(CudaCommunicator &communicator,
                                       CudaCommunicator parent, int color) = 0;
  /// Returns cudaOk, cudaInProgress, or the asynchronous error.
  virtual CudaStatus communicatorState(CudaCommunicator communicator) = 0;
  /// Ends the communicator without its other ranks: collectives under way
  /// return with undefined results. For a job that has failed.
  virtual CudaStatus abortCommunicator(CudaCommunicator communicator) = 0;
  /// Ends it together with the other ranks, once all collectives are done.
  virtual CudaStatus destroyCommunicator(CudaCommunicator communicator) = 0;
  /// Registers memory that the collectives use often. `registration` is null if
  /// there is nothing to undo.
  virtual CudaStatus registerMemory(CudaCommunicator communicator, void *memory,
                                    size_t bytes, void *&registration) = 0;
  virtual CudaStatus deregisterMemory(CudaCommunicator communicator,
                                      void *registration) = 0;
  /// Registers shared memory of which every rank of the communicator passes as
  /// many bytes, as a symmetric window: in each collective the larger buffers
  /// of all ranks lie at the same offset from its begin. All ranks make the
  /// call in the same order. `window` is null if the communicator cannot use
  /// it. Needs NCCL 2.27.
  virtual CudaStatus registerWindow(CudaCommunicator communicator, void *memory,
                                    size_t bytes, void *&window) = 0;
  virtual CudaStatus deregisterWindow(CudaCommunicator communicator,
                                      void *window) = 0;
  /// Writes rank r's `bytes` bytes at `shard` to whole[r · bytes …] for every
  /// r. `shard` may already lie at its place.
  virtual CudaStatus allGather(CudaCommunicator communicator, const void *shard,
                               void *whole, size_t bytes,
                               CudaStream stream) = 0;
  /// Writes to `shard` the sum over the ranks of whole[rank · elements …],
  /// added in NCCL's order.
  virtual CudaStatus reduceScatter(CudaCommunicator communicator,
                                   const void *whole, void *shard,
                                   size_t elements, WireType type,
                                   CudaStream stream) = 0;
  /// Overwrites `values` with their sum over the ranks, in f32 and in NCCL's
  /// order. All ranks get the same bits.
  virtual CudaStatus allReduce(CudaCommunicator communicator, float *values,
                               size_t elements, CudaStream stream) = 0;
  /// The same in the type, and on rank `root` alone, at `sum`; null on others.
  virtual CudaStatus reduce(CudaCommunicator communicator, const void *values,
                            void *sum, size_t elements, WireType type, int root,
                            CudaStream stream) = 0;
  /// Copies the values of rank `root` to all others.
  virtual CudaStatus broadcast(CudaCommunicator communicator, void *values,
                               size_t bytes, int root, CudaStream stream) = 0;
  /// The calls of a thread between groupBegin and groupEnd, on one
  /// communicator, run as one exchange.
  virtual CudaStatus groupBegin() = 0;
  virtual CudaStatus groupEnd() = 0;
  virtual CudaStatus send(CudaCommunicator communicator, const void *from,
                          size_t bytes, int peer, CudaStream stream) = 0;
  virtual CudaStatus receive(CudaCommunicator communicator, void *to,
                             size_t bytes, int peer, CudaStream stream) = 0;

  // ---- names for profilers (NVTX): nested, per calling thread ----
  virtual void beginRange(const char *name) = 0;
  virtual void endRange() = 0;
};

/// Returns the table that this program was linked with: the real one or the
/// emulation. All ranks of the process share it; the caller does not own it.
CudaApi &cudaApi();

} // namespace fsdpc::runtime

// The real side of the table: each function forwards to cudart, cuBLASLt, cuDNN
// or NCCL. There is one source file per library, and only these files include
// the libraries' headers, so the rest builds without them.
#pragma once

#include "runtime/cuda/api.h"

namespace fsdpc::runtime {

// The first code of each library in CudaStatus. Those of cudart are
// unchanged.
constexpr CudaStatus cublasCodes = 20000, cudnnCodes = 30000,
                     cudnnGraphCodes = 40000, ncclCodes = 50000;

// Explain a code in one line. `status` is the library's own, without the
// offset.
std::string describeCublas(int status);
std::string describeCudnn(int status);
std::string describeCudnnGraph(int code);
std::string describeNccl(int status);

// Has no members: the loaded program and the handles of the libraries are
// static in the source files, since all ranks of a process share them.
class RealCudaApi : public CudaApi {
public:
  std::string label() const override { return ""; }
  std::string errorText(CudaStatus status) override;

  // ---- cudart: real_device.cpp ----
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
  void beginRange(const char *name) override;
  void endRange() override;

  // ---- cuBLASLt: real_gemm.cpp ----
  CudaStatus planGemm(const CudaGemmShape &shape, size_t cap, CudaGemm &gemm,
                      CudaChoice &choice) override;
  CudaStatus gemm(CudaGemm gemm, const CudaGemmOperands &operands,
                  void *workspace, CudaStream stream) override;
  CudaStatus destroyGemm(CudaGemm gemm) override;
  CudaStatus listGemms(CudaGemm gemm, size_t cap, int most, bool roundsParts,
                       std::vector<std::string> &codes) override;
  CudaStatus chooseGemm(CudaGemm gemm, size_t cap, const std::string &code,
                        CudaChoice &choice) override;

  // ---- cuDNN: real_dnn.cpp ----
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

  // ---- NCCL: real_nccl.cpp ----
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
};

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolution and attention over cuDNN. A plan is a graph (dnn_graphs.h) that
// was built once, with the first engine of cuDNN's heuristic that meets the
// conditions on numerics, determinism and workspace.
#include "runtime/core/plan_checks.h"
#include "runtime/cuda/dnn_graphs.h"
#include "runtime/cuda/real_api.h"
#include "runtime/support/concat.h"

#include <map>
#include <unordered_map>

namespace fsdpc::runtime {

namespace {

namespace fe = cudnn_frontend;

CudaStatus checked(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? cudaOk : cudnnCodes + int(status);
}

// A handle serves one device, and one thread at a time.
CudaStatus handleOfThread(cudnnHandle_t &handle) {
  thread_local std::map<int, cudnnHandle_t> handles;
  int device = 0;
  if (cudaError_t status = cudaGetDevice(&device))
    return status;
  cudnnHandle_t &known = handles[device];
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  if (!known)
    status = cudnnCreate(&known);
  handle = known;
  return checked(status);
}

// One operation as a built graph.
struct Operation {
  cudnnHandle_t handle = nullptr;
  fe::graph::Graph graph;
  int operands = 0;

  fe::error_t build(const std::vector<fe::NumericalNote_t> &refused,
                    int64_t cap, CudaChoice &choice);
};

// Engines with refused numerics or too large a workspace are excluded before
// the heuristic's first choice is taken.
fe::error_t Operation::build(const std::vector<fe::NumericalNote_t> &refused,
                             int64_t cap, CudaChoice &choice) {
  fe::error_t error = graph.validate();
  if (error.is_good())
    error = graph.build_operation_graph(handle);
  if (error.is_good())
    error = graph.create_execution_plans(
        {fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
  // Filters act on the plans that exist, so they follow create_execution_plans.
  graph.deselect_numeric_notes(refused);
  if (cap >= 0)
    graph.deselect_workspace_greater_than(cap);
  if (error.is_good())
    // The remaining plans are tried in the order of the heuristic, and the
    // first that the library supports is built.
    error = graph.check_support();
  if (error.is_good())
    error = graph.build_plans();
  int64_t workspace = 0;
  if (error.is_good())
    error = graph.get_workspace_size(workspace);
  if (error.is_good())
    error = graph.get_plan_name(choice.algorithm);
  choice.workspaceBytes = size_t(workspace);
  return error;
}

// Shortens the library's messages, which may have several lines, to the first.
std::string firstLine(const std::string &text) {
  return "cuDNN: " + text.substr(0, text.find('\n'));
}

// Builds the graph that `describe` describes.
template <typename Describe>
CudaStatus plan(const Describe &describe,
                const std::vector<fe::NumericalNote_t> &refused, int64_t cap,
                void *&handle, CudaChoice &choice) {
  auto operation = std::make_unique<Operation>();
  if (CudaStatus status = handleOfThread(operation->handle))
    return status;
  operation->operands = describe(operation->graph);
  fe::error_t error = operation->build(refused, cap, choice);
  if (error.is_bad()) {
    choice.algorithm = firstLine(error.get_message());
    return cudaRefused;
  }
  // Owned by the caller until destroyConvolution or destroyAttention.
  handle = operation.release();
  return cudaOk;
}

// `operands` are in the order of their numbers, from 1.
CudaStatus run(void *handle, void **operands, void *workspace,
               CudaStream stream) {
  Operation &operation = *static_cast<Operation *>(handle);
  cudnnStatus_t status =
      cudnnSetStream(operation.handle, static_cast<cudaStream_t>(stream));
  if (status)
    return checked(status);
  // A new map per call, because the library adds pointers of its own.
  std::unordered_map<int64_t, void *> pointers;
  for (int i = 0; i < operation.operands; ++i)
    pointers.emplace(i + 1, operands[i]);
  fe::error_t error =
      operation.graph.execute(operation.handle, pointers, workspace);
  return error.is_bad() ? cudnnGraphCodes + int(error.get_code()) : cudaOk;
}

// Refuses a plan with the reason in place of the algorithm.
CudaStatus refuse(CudaChoice &choice, const std::string &reason) {
  choice.algorithm = reason;
  return cudaRefused;
}

} // namespace

std::string describeCudnn(int status) {
  return std::string("cuDNN: ") +
         cudnnGetErrorString(static_cast<cudnnStatus_t>(status));
}

// The last error string has details that the code of cudnn_frontend lacks.
std::string describeCudnnGraph(int code) {
  char last[512] = "";
  cudnnGetLastErrorString(last, sizeof(last));
  return firstLine(concat("cannot execute a graph, code ", code,
                          *last ? std::string("; ") + last : ""));
}

CudaStatus RealCudaApi::planConvolution(const ConvolutionPlan &p, size_t cap,
                                        bool deterministic,
                                        CudaConvolution &convolution,
                                        CudaChoice &choice) {
  if (p.dtype != "f32" && p.dtype != "bf16" && p.dtype != "f16")
    return refuse(choice, "type is neither f32, bf16 nor f16");
  // Tensor cores would round f32 operands to TF32.
  std::vector<fe::NumericalNote_t> refused{
      fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION,
      fe::NumericalNote_t::DOWN_CONVERT_INPUTS};
  if (p.dtype == "f32")
    refused.push_back(fe::NumericalNote_t::TENSOR_CORE);
  if (deterministic)
    refused.push_back(fe::NumericalNote_t::NONDETERMINISTIC);
  return plan([&](fe::graph::Graph &g) { return describeConvolution(g, p); },
              refused, int64_t(cap), convolution, choice);
}

CudaStatus RealCudaApi::convolution(CudaConvolution convolution, const void *x,
                                    const void *w, void *y, void *workspace,
                                    CudaStream stream) {
  void *operands[] = {const_cast<void *>(x), const_cast<void *>(w), y};
  return run(convolution, operands, workspace, stream);
}

CudaStatus RealCudaApi::destroyConvolution(CudaConvolution convolution) {
  delete static_cast<Operation *>(convolution);
  return cudaOk;
}

CudaStatus RealCudaApi::planAttention(const AttentionPlan &p,
                                      bool deterministic,
                                      CudaAttention &attention,
                                      CudaChoice &choice) {
  if (p.dtype != "bf16" && p.dtype != "f16")
    return refuse(choice, "fused attention supports bf16 and f16 only");
  if (!p.dtypeMask.empty())
    return refuse(choice,
                  "fused attention supports no mask except the causal one");
  if (std::string why = whyUnaligned(p); !why.empty())
    return refuse(choice, why);
  // Bottom-right alignment leaves the first queries without keys. The ABI
  // defines their result as zeroes, which the library does not promise.
  if (p.causal && p.queries > p.keys)
    return refuse(choice, "some queries have no key");
  // For these, cudnn_frontend copies sequence lengths from host memory that no
  // longer exists when a graph replays the copy.
  if (p.backward && p.keys % 128 != 0 && cudnnGetVersion() <= 91500)
    return refuse(choice, "cuDNN up to 9.15 requires a multiple of 128 keys");
  return plan(
      [&](fe::graph::Graph &g) {
        return describeAttention(g, p, deterministic);
      },
      {}, -1, attention, choice);
}

CudaStatus RealCudaApi::attention(CudaAttention attention,
                                  const void *const *operands, void *workspace,
                                  CudaStream stream) {
  // Leaves out the mask, which is the ABI's fourth operand, or the seventh of
  // the backward call.
  constexpr int forward = 5, backward = 9;
  void *used[backward];
  int count = static_cast<Operation *>(attention)->operands;
  int mask = count == forward ? 3 : 6;
  for (int i = 0; i < count; ++i)
    used[i] = const_cast<void *>(operands[i < mask ? i : i + 1]);
  return run(attention, used, workspace, stream);
}

CudaStatus RealCudaApi::destroyAttention(CudaAttention attention) {
  delete static_cast<Operation *>(attention);
  return cudaOk;
}

} // namespace fsdpc::runtime

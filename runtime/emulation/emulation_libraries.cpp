// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// cuBLASLt and cuDNN of the emulation. Plans are refused where the libraries
// refuse them, so that the fallbacks of runtime/cuda run too. Workspaces are
// overwritten in every call, so that anybody who shares one by mistake notices.
#include "runtime/core/plan_checks.h"
#include "runtime/emulation/attention.h"
#include "runtime/emulation/convolution.h"
#include "runtime/emulation/emulation.h"
#include "runtime/emulation/gemm.h"
#include "runtime/emulation/status.h"
#include "runtime/emulation/values.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fsdpc::runtime::emulation {

namespace {

// Small, but not 0: every call then checks and overwrites the workspace that it
// was given.
constexpr size_t wantedWorkspace = size_t(64) << 10;

// Not an error: the caller takes another way and says why in its notes.
CudaStatus refusePlan(CudaChoice &choice, const std::string &reason) {
  choice.algorithm = reason;
  return cudaRefused;
}

// Returns the number of elements from the first to the last of a tensor with
// these (length, stride) axes.
int64_t extentOf(std::initializer_list<std::pair<int64_t, int64_t>> axes) {
  int64_t extent = 1;
  for (auto [length, stride] : axes)
    extent += (length - 1) * stride;
  return extent;
}

// A transposed operand is the same memory with row and column strides
// exchanged.
void runWhole(const CudaGemmShape &s, const CudaGemmOperands &of) {
  Epilogue epilogue = s.epilogue == "gelu_grad" ? Epilogue::geluGrad
                      : s.epilogue == "sum_lhs" ? Epilogue::sumA
                      : s.epilogue == "sum_rhs" ? Epilogue::sumB
                      : s.epilogue.empty()      ? Epilogue::none
                                                : Epilogue::gelu;
  for (int64_t i = 0; i < s.count; ++i) {
    void *c = at(of.c, s.dtypeC, i * s.strideC);
    multiply({s.m,
              s.n,
              s.k,
              {at(of.a, s.dtypeA, i * s.strideA), s.dtypeA,
               s.transposeA ? 1 : s.lda, s.transposeA ? s.lda : 1},
              {at(of.b, s.dtypeB, i * s.strideB), s.dtypeB,
               s.transposeB ? 1 : s.ldb, s.transposeB ? s.ldb : 1},
              c,
              s.dtypeC,
              s.ldc,
              s.beta != 0 ? c : of.addend,
              of.bias,
              epilogue,
              of.input,
              of.extra});
  }
}

// The algorithms of products. The second splits k in two and rounds the first
// sum to the result's type, so bits show which one ran.
constexpr const char *algorithms[] = {"plain-loops", "split-loops"};

void runGemm(const CudaGemmShape &whole, int algorithm,
             const CudaGemmOperands &operands) {
  CudaGemmShape s = whole;
  CudaGemmOperands of = operands;
  int64_t half = s.k / 2;
  bool sums = s.epilogue == "sum_lhs" || s.epilogue == "sum_rhs";
  if (algorithm == 1 && half > 0 && !sums) {
    s.k = half;
    s.epilogue.clear();
    of.bias = nullptr;
    runWhole(s, of);
    of = operands;
    of.a = at(of.a, s.dtypeA, half * (s.transposeA ? s.lda : 1));
    of.b = at(of.b, s.dtypeB, half * (s.transposeB ? 1 : s.ldb));
    s.k = whole.k - half;
    s.epilogue = whole.epilogue;
    s.beta = 1;
  }
  runWhole(s, of);
}

} // namespace

template <typename Plan>
CudaStatus Emulation::addPlan(Handles<LibraryPlan<Plan>> &handles,
                              const Plan &plan, size_t workspaceBytes,
                              void *&handle, CudaChoice &choice) {
  // Libraries allocate when they plan.
  if (CudaStatus status = refuseInCapture("a plan"))
    return status;
  choice = {workspaceBytes, "plain loops"};
  std::lock_guard<std::mutex> lock(mutex);
  handle = handles.add(std::make_shared<LibraryPlan<Plan>>(
      LibraryPlan<Plan>{plan, workspaceBytes}));
  return currentDevice().state();
}

template <typename Plan>
CudaStatus Emulation::removePlan(Handles<LibraryPlan<Plan>> &handles,
                                 const void *handle) {
  std::lock_guard<std::mutex> lock(mutex);
  return handles.remove(handle)
             ? cudaOk
             : status::refuse(status::invalidHandle, "a plan");
}

template <typename Plan, typename Run>
CudaStatus
Emulation::call(Handles<LibraryPlan<Plan>> &handles, const void *handle,
                const std::function<std::vector<Buffer>(const Plan &)> &buffers,
                void *workspace, CudaStream stream, Run run) {
  std::shared_ptr<LibraryPlan<Plan>> plan;
  {
    std::lock_guard<std::mutex> lock(mutex);
    plan = handles.find(handle);
  }
  if (!plan)
    return status::refuse(status::invalidHandle, "a plan");
  // Checks buffers in the call and not when the work runs, so that the error
  // names the op that enqueues it.
  for (const Buffer &buffer : buffers(plan->plan))
    if (CudaStatus status =
            checkBuffer(buffer.memory, size_t(buffer.bytes), buffer.name))
      return status;
  if (plan->workspaceBytes) {
    // The alignment that CudaChoice::workspaceBytes promises.
    if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0)
      return status::refuse(status::invalidValue,
                            "a workspace is not aligned to 256 bytes");
    if (CudaStatus status =
            checkBuffer(workspace, plan->workspaceBytes, "a workspace"))
      return status;
  }
  return submit(stream, /*bound=*/true,
                // The work holds the plan, so destroying the handle does not
                // disturb what is enqueued.
                [plan, workspace, run = std::move(run)](Chance &) {
                  // The workspace becomes a NaN in every float type.
                  if (plan->workspaceBytes)
                    memset(workspace, 0xff, plan->workspaceBytes);
                  run(plan->plan);
                });
}

CudaStatus Emulation::planGemm(const CudaGemmShape &s, size_t cap,
                               CudaGemm &gemm, CudaChoice &choice) {
  if (faults.is(Fault::refuseProducts))
    return refusePlan(choice, "a fault refuses products");
  if (faults.is(Fault::refuseEpilogues) && (s.addend || !s.epilogue.empty()))
    return refusePlan(choice, "a fault refuses epilogues");
  bool f64 = s.dtypeA == "f64",
       narrowed = s.dtypeA == "bf16" || s.dtypeA == "f16";
  // The combinations that cuBLASLt computes with f32 or f64 sums.
  bool known = s.dtypeA == s.dtypeB &&
               (f64        ? s.dtypeC == "f64"
                : narrowed ? s.dtypeC == s.dtypeA || s.dtypeC == "f32"
                           : s.dtypeA == "f32" && s.dtypeC == "f32");
  if (!known)
    return refusePlan(choice, "unsupported types");
  if (std::min({s.m, s.n, s.k, s.count}) < 1)
    return refusePlan(choice, "an empty dimension");
  if (s.bias && s.dtypeC != s.dtypeA) // no program has these: for tests
    return refusePlan(choice, "a bias for a result wider than its operands");
  return addPlan(gemms, EmulatedGemm{s, 0}, std::min(cap, wantedWorkspace),
                 gemm, choice);
}

CudaStatus Emulation::gemm(CudaGemm gemm, const CudaGemmOperands &of,
                           void *workspace, CudaStream stream) {
  // Chosen anew, a plan changes nothing for what is enqueued.
  auto algorithm = std::make_shared<int>();
  auto buffers = [=](const EmulatedGemm &plan) {
    const CudaGemmShape &s = plan.shape;
    *algorithm = plan.algorithm;
    // Bytes from the first to the last element that the operand may touch, over
    // all products of the batch.
    auto bytes = [&](const std::string &dtype, int64_t rows, int64_t columns,
                     bool transposed, int64_t row, int64_t stride) {
      if (transposed)
        std::swap(rows, columns);
      return dtypeBytes(dtype) *
             extentOf({{s.count, stride}, {rows, row}, {columns, 1}});
    };
    int64_t whole = bytes(s.dtypeC, s.m, s.n, false, s.ldc, s.strideC);
    std::vector<Buffer> operands{
        {of.a, bytes(s.dtypeA, s.m, s.k, s.transposeA, s.lda, s.strideA), "A"},
        {of.b, bytes(s.dtypeB, s.k, s.n, s.transposeB, s.ldb, s.strideB), "B"},
        {of.c, whole, "C"}};
    if (s.bias)
      operands.push_back({of.bias, dtypeBytes(s.dtypeC) * s.n, "a bias"});
    if (s.addend)
      operands.push_back({of.addend, whole, "an addend"});
    if (s.epilogue == "gelu_grad")
      operands.push_back({of.input, whole, "GELU's input"});
    if (s.epilogue == "gelu_extra")
      operands.push_back({of.extra, whole, "GELU's input"});
    if (s.epilogue == "sum_lhs" || s.epilogue == "sum_rhs")
      operands.push_back(
          {of.extra,
           dtypeBytes(s.dtypeC) * (s.epilogue == "sum_lhs" ? s.m : s.n),
           "sums"});
    return operands;
  };
  return call<EmulatedGemm>(
      gemms, gemm, buffers, workspace, stream,
      [=](const EmulatedGemm &plan) { runGemm(plan.shape, *algorithm, of); });
}

CudaStatus Emulation::destroyGemm(CudaGemm gemm) {
  return removePlan(gemms, gemm);
}

CudaStatus Emulation::listGemms(CudaGemm gemm, size_t, int most,
                                bool roundsParts,
                                std::vector<std::string> &codes) {
  if (CudaStatus status = refuseInCapture("a list of algorithms"))
    return status;
  std::lock_guard<std::mutex> lock(mutex);
  if (!gemms.find(gemm))
    return status::refuse(status::invalidHandle, "a plan");
  int known = roundsParts ? 2 : 1;
  codes.assign(algorithms, algorithms + std::min(most, known));
  return currentDevice().state();
}

CudaStatus Emulation::chooseGemm(CudaGemm gemm, size_t, bool roundsParts,
                                 const std::string &code, CudaChoice &choice) {
  auto found = std::find(std::begin(algorithms), std::end(algorithms), code);
  if (found == std::end(algorithms))
    return refusePlan(choice, "no algorithm of the emulation");
  if (code == algorithms[1] && !roundsParts)
    return refusePlan(choice, "an algorithm that rounds partial sums");
  std::lock_guard<std::mutex> lock(mutex);
  auto plan = gemms.find(gemm);
  if (!plan)
    return status::refuse(status::invalidHandle, "a plan");
  plan->plan.algorithm = int(found - algorithms);
  choice = {plan->workspaceBytes, code};
  return cudaOk;
}

CudaStatus Emulation::planConvolution(const ConvolutionPlan &plan, size_t cap,
                                      bool, CudaConvolution &convolution,
                                      CudaChoice &choice) {
  if (faults.is(Fault::refuseConvolutions))
    return refusePlan(choice, "a fault refuses convolutions");
  if (plan.dtype != "f32" && plan.dtype != "bf16" && plan.dtype != "f16")
    return refusePlan(choice, "type is neither f32, bf16 nor f16");
  return addPlan(convolutions, plan, std::min(cap, wantedWorkspace),
                 convolution, choice);
}

CudaStatus Emulation::convolution(CudaConvolution convolution, const void *x,
                                  const void *w, void *y, void *workspace,
                                  CudaStream stream) {
  auto buffers = [=](const ConvolutionPlan &p) {
    int64_t element = dtypeBytes(p.dtype);
    // Tensors of a convolution are dense.
    int64_t image = p.batch * p.channels * p.height * p.width * element;
    int64_t result = p.batch * p.filters * p.outHeight * p.outWidth * element;
    // `x`, `w` and `y` hold different tensors for each kind
    // (fsdpc_convolution).
    int64_t weight = p.filters * p.channels / p.groups * p.kernelHeight *
                     p.kernelWidth * element;
    if (p.kind == "forward")
      return std::vector<Buffer>{
          {x, image, "x"}, {w, weight, "w"}, {y, result, "y"}};
    if (p.kind == "input")
      return std::vector<Buffer>{
          {x, result, "dy"}, {w, weight, "w"}, {y, image, "dx"}};
    return std::vector<Buffer>{
        {x, image, "x"}, {w, result, "dy"}, {y, weight, "dw"}};
  };
  return call<ConvolutionPlan>(
      convolutions, convolution, buffers, workspace, stream,
      [=](const ConvolutionPlan &plan) { convolve(plan, x, w, y); });
}

CudaStatus Emulation::destroyConvolution(CudaConvolution convolution) {
  return removePlan(convolutions, convolution);
}

CudaStatus Emulation::planAttention(const AttentionPlan &plan, bool,
                                    CudaAttention &attention,
                                    CudaChoice &choice) {
  if (faults.is(Fault::refuseAttention))
    return refusePlan(choice, "a fault refuses attention");
  // The same limits as cuDNN's fused kernels.
  if (plan.dtype != "bf16" && plan.dtype != "f16")
    return refusePlan(choice, "fused attention supports bf16 and f16 only");
  if (!plan.dtypeMask.empty())
    return refusePlan(choice,
                      "fused attention supports no mask except the causal one");
  if (std::string why = whyUnaligned(plan); !why.empty())
    return refusePlan(choice, why);
  if (plan.causal && plan.queries > plan.keys)
    return refusePlan(choice, "some queries have no key");
  if (plan.width % 8 || plan.valueWidth % 8 ||
      std::max(plan.width, plan.valueWidth) > 128)
    return refusePlan(choice, "heads are no multiple of 8 up to 128 wide");
  return addPlan(attentions, plan, wantedWorkspace, attention, choice);
}

CudaStatus Emulation::attention(CudaAttention attention,
                                const void *const *operands, void *workspace,
                                CudaStream stream) {
  auto buffers = [=](const AttentionPlan &p) {
    // Bytes from the first to the last element of a tensor with strides of
    // batch, head and row.
    auto rows = [&](const void *operand, const std::vector<int64_t> &strides,
                    int64_t heads, int64_t length, int64_t width,
                    const char *name) {
      return Buffer{operand,
                    dtypeBytes(p.dtype) * extentOf({{p.batch, strides[0]},
                                                    {heads, strides[1]},
                                                    {length, strides[2]},
                                                    {width, 1}}),
                    name};
    };
    // The backward call has the cotangent in front of query, key and value.
    // Output and log-sum-exp are operands 4 and 5 of both.
    const void *const *o = operands + (p.backward ? 1 : 0);
    const void *output = operands[4], *lse = operands[5];
    std::vector<Buffer> all = {
        rows(o[0], p.strideQuery, p.heads, p.queries, p.width, "query"),
        rows(o[1], p.strideKey, p.groups, p.keys, p.width, "key"),
        rows(o[2], p.strideValue, p.groups, p.keys, p.valueWidth, "value"),
        rows(output, p.strideOutput, p.heads, p.queries, p.valueWidth,
             "output"),
        {lse, p.batch * p.heads * p.queries * 4, "log-sum-exp"}};
    if (p.backward)
      for (const Buffer &buffer :
           {rows(operands[0], p.strideGrad, p.heads, p.queries, p.valueWidth,
                 "grad"),
            rows(operands[7], p.strideDQuery, p.heads, p.queries, p.width,
                 "dquery"),
            rows(operands[8], p.strideDKey, p.groups, p.keys, p.width, "dkey"),
            rows(operands[9], p.strideDValue, p.groups, p.keys, p.valueWidth,
                 "dvalue")})
        all.push_back(buffer);
    return all;
  };
  // The number of operands is known only to the plan.
  auto copied = std::make_shared<std::vector<const void *>>();
  return call<AttentionPlan>(
      attentions, attention,
      [&](const AttentionPlan &p) {
        // The caller's array is gone when the work runs.
        copied->assign(operands, operands + (p.backward ? 10 : 6));
        return buffers(p);
      },
      workspace, stream,
      [copied](const AttentionPlan &plan) { attend(plan, copied->data()); });
}

CudaStatus Emulation::destroyAttention(CudaAttention attention) {
  return removePlan(attentions, attention);
}

} // namespace fsdpc::runtime::emulation

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products over cuBLASLt. The library is column-major. So C = A · B is
// computed as Cᵀ = Bᵀ · Aᵀ, which is the same memory with the operands swapped.
//
// Two algorithms are chosen per shape: one for operands aligned to 16 bytes,
// and one for any others. Which one runs depends on the addresses of a call.
// The first one may be replaced by another that the heuristic lists.
#include "runtime/abi/element_type.h"
#include "runtime/cuda/real_api.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <charconv>
#include <cublasLt.h>
#include <map>
#include <mutex>

namespace fsdpc::runtime {

namespace {

CudaStatus checked(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? cudaOk : cublasCodes + int(status);
}

// Returns false for a type that no product has.
bool parseType(const std::string &name, cudaDataType_t &type) {
  if (name == "f32")
    type = CUDA_R_32F;
  else if (name == "bf16")
    type = CUDA_R_16BF;
  else if (name == "f16")
    type = CUDA_R_16F;
  else if (name == "f64")
    type = CUDA_R_64F;
  else
    return false;
  return true;
}

// One handle per device, for all threads.
CudaStatus handleOfDevice(cublasLtHandle_t &handle) {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  int device = 0;
  if (cudaError_t status = cudaGetDevice(&device))
    return status;
  std::lock_guard<std::mutex> lock(mutex);
  cublasLtHandle_t &known = handles[device];
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (!known)
    status = cublasLtCreate(&known);
  handle = known;
  return checked(status);
}

constexpr size_t wideAlignment = 16; // bytes that the widest accesses need
constexpr size_t wideAlignments[] = {wideAlignment, wideAlignment,
                                     wideAlignment};

// Limits what an algorithm may take and do.
struct Bounds {
  size_t cap;               // bytes of workspace
  const size_t *alignments; // of A, B and C
  uint32_t schemes;         // how a split product may add its parts
};

// Partial sums stay in the workspace, and a kernel of their own adds them: in
// f32, or rounded to the result's type. Sums in place are left out, since their
// order varies, and with it the bits of a choice that is read from its file.
constexpr uint32_t exactParts = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                   anyParts =
                       exactParts | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;

uint32_t schemesOf(bool roundsParts) {
  return roundsParts ? anyParts : exactParts;
}

// A planned product.
struct Gemm {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  // In the order that cuBLASLt takes them: B, then A.
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  // `wide` is for operands that begin at multiples of wideAlignment.
  cublasLtMatmulAlgo_t wide, narrow;
  size_t workspaceBytes = 0, narrowBytes = 0; // of the larger, of `narrow`
  bool inF64 = false;
  double beta = 0;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;

  ~Gemm() {
    for (cublasLtMatrixLayout_t layout : {first, second, result})
      if (layout)
        cublasLtMatrixLayoutDestroy(layout);
    if (product)
      cublasLtMatmulDescDestroy(product);
  }

  cublasStatus_t describe(const CudaGemmShape &s, const cudaDataType_t *types);
  cublasStatus_t describeEpilogue(const CudaGemmShape &s, cudaDataType_t type);
  cublasStatus_t setAddresses(const void *bias, const void *aux);
  // Fills up to `most` results of the heuristic.
  cublasStatus_t list(const Bounds &bounds, int most,
                      cublasLtMatmulHeuristicResult_t *results, int &found);
  // Returns the first one.
  cublasStatus_t choose(const Bounds &bounds,
                        cublasLtMatmulHeuristicResult_t &chosen);
};

cublasStatus_t describeMatrix(cublasLtMatrixLayout_t &layout,
                              cudaDataType_t type, int64_t rows,
                              int64_t columns, int64_t lead, int64_t count,
                              int64_t stride) {
  cublasStatus_t status = cublasLtMatrixLayoutCreate(
      &layout, type, uint64_t(rows), uint64_t(columns), lead);
  int32_t batch = int32_t(count);
  if (!status)
    status = cublasLtMatrixLayoutSetAttribute(
        layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch));
  if (!status)
    status = cublasLtMatrixLayoutSetAttribute(
        layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
        sizeof(stride));
  return status;
}

// Describes Cᵀ = Bᵀ · Aᵀ: a row-major matrix is its own transpose in
// column-major order.
cublasStatus_t Gemm::describe(const CudaGemmShape &s,
                              const cudaDataType_t *types) {
  inF64 = types[2] == CUDA_R_64F;
  beta = s.addend ? 1 : s.beta;
  // Not FAST_TF32, which would round f32 operands.
  cublasStatus_t status = cublasLtMatmulDescCreate(
      &product, inF64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
      inF64 ? CUDA_R_64F : CUDA_R_32F);
  // Transposing both sides swaps the operands and leaves each one's flag as it
  // is.
  cublasOperation_t operations[] = {
      s.transposeB ? CUBLAS_OP_T : CUBLAS_OP_N,
      s.transposeA ? CUBLAS_OP_T : CUBLAS_OP_N,
  };
  cublasLtMatmulDescAttributes_t attributes[] = {CUBLASLT_MATMUL_DESC_TRANSA,
                                                 CUBLASLT_MATMUL_DESC_TRANSB};
  for (int i = 0; i < 2 && !status; ++i)
    status = cublasLtMatmulDescSetAttribute(
        product, attributes[i], &operations[i], sizeof(operations[i]));
  if (!status)
    status = describeEpilogue(s, types[2]);
  if (!status)
    status =
        describeMatrix(first, types[1], s.transposeB ? s.k : s.n,
                       s.transposeB ? s.n : s.k, s.ldb, s.count, s.strideB);
  if (!status)
    status =
        describeMatrix(second, types[0], s.transposeA ? s.m : s.k,
                       s.transposeA ? s.k : s.m, s.lda, s.count, s.strideA);
  if (!status)
    status =
        describeMatrix(result, types[2], s.n, s.m, s.ldc, s.count, s.strideC);
  return status;
}

// A row here is a column for cuBLASLt, and its first operand is our B. So the
// sums over k of our A are those of its B.
uint32_t epilogueOf(const CudaGemmShape &s) {
  const std::string &e = s.epilogue;
  if (e == "gelu")
    return s.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  if (e == "gelu_extra")
    return s.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                  : CUBLASLT_EPILOGUE_GELU_AUX;
  if (e == "gelu_grad")
    return CUBLASLT_EPILOGUE_DGELU;
  if (e == "sum_lhs" || e == "sum_rhs")
    return e == "sum_lhs" ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA;
  return s.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// The bits of the epilogues that read or write a row, and GELU's input.
constexpr uint32_t rowEpilogues = CUBLASLT_EPILOGUE_BIAS |
                                  CUBLASLT_EPILOGUE_BGRADA |
                                  CUBLASLT_EPILOGUE_BGRADB,
                   inputEpilogues = 128; // of GELU_AUX and DGELU

cublasStatus_t Gemm::describeEpilogue(const CudaGemmShape &s,
                                      cudaDataType_t type) {
  epilogue = epilogueOf(s);
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    if (!status)
      status = cublasLtMatmulDescSetAttribute(product, attribute, &value,
                                              sizeof(value));
  };
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (epilogue & rowEpilogues)
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t(type));
  if (epilogue & inputEpilogues) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, int32_t(type));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(s.ldc));
  }
  return status;
}

// The descriptor holds the addresses, so they are set again for each call. This
// is why a plan belongs to one thread. `row` is a bias or the sums of rows,
// `input` that of GELU.
cublasStatus_t Gemm::setAddresses(const void *row, const void *input) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (epilogue & rowEpilogues)
    status = cublasLtMatmulDescSetAttribute(
        product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &row, sizeof(row));
  if (!status && (epilogue & inputEpilogues))
    status = cublasLtMatmulDescSetAttribute(
        product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &input,
        sizeof(input));
  return status;
}

cublasStatus_t Gemm::list(const Bounds &bounds, int most,
                          cublasLtMatmulHeuristicResult_t *results,
                          int &found) {
  cublasLtMatmulPreference_t preference = nullptr;
  cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
  auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    if (!status)
      status = cublasLtMatmulPreferenceSetAttribute(preference, attribute,
                                                    &value, sizeof(value));
  };
  const size_t *alignments = bounds.alignments;
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(bounds.cap));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, bounds.schemes);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(alignments[1]));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(alignments[0]));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(alignments[2]));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(alignments[2]));
  // The heuristic derives alignments from these addresses. GELU's input is an
  // activation, which begins at a multiple of wideAlignment in any case.
  if (!status)
    status = setAddresses(reinterpret_cast<const void *>(alignments[2]),
                          reinterpret_cast<const void *>(wideAlignment));
  found = 0;
  if (!status)
    status = cublasLtMatmulAlgoGetHeuristic(handle, product, first, second,
                                            result, result, preference, most,
                                            results, &found);
  if (preference)
    cublasLtMatmulPreferenceDestroy(preference);
  return status;
}

cublasStatus_t Gemm::choose(const Bounds &bounds,
                            cublasLtMatmulHeuristicResult_t &chosen) {
  int found = 0;
  cublasStatus_t status = list(bounds, 1, &chosen, found);
  return status ? status : found ? chosen.state : CUBLAS_STATUS_NOT_SUPPORTED;
}

// An algorithm as text: the library's version, and its bytes. NVIDIA's document
// says that the bytes may be kept for the same version.
std::string codeOf(const cublasLtMatmulAlgo_t &algorithm) {
  constexpr char digits[] = "0123456789abcdef";
  std::string code = concat(cublasLtGetVersion(), ":");
  for (size_t i = 0; i < sizeof algorithm; ++i) {
    auto byte = reinterpret_cast<const unsigned char *>(&algorithm)[i];
    code += {digits[byte >> 4], digits[byte & 15]};
  }
  return code;
}

// Returns false if the text is no algorithm of this version.
bool parseCode(const std::string &code, cublasLtMatmulAlgo_t &algorithm) {
  std::string version = concat(cublasLtGetVersion(), ":");
  const char *at = code.data() + version.size();
  if (code.size() != version.size() + 2 * sizeof algorithm ||
      code.compare(0, version.size(), version) != 0)
    return false;
  for (size_t i = 0; i < sizeof algorithm; ++i, at += 2) {
    auto &byte = reinterpret_cast<unsigned char *>(&algorithm)[i];
    auto [end, error] = std::from_chars(at, at + 2, byte, 16);
    if (error != std::errc() || end != at + 2)
      return false;
  }
  return true;
}

// Returns true if an algorithm has no partial sums, or adds them by one of
// these schemes.
bool addsPartsBy(const cublasLtMatmulAlgo_t &algorithm, uint32_t schemes) {
  uint32_t scheme = 0;
  return cublasLtMatmulAlgoConfigGetAttribute(
             &algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
             sizeof scheme, nullptr) == CUBLAS_STATUS_SUCCESS &&
         (scheme & ~schemes) == 0;
}

// Describes an algorithm: "algorithm 66, tile 20, split 1".
std::string algorithmText(const cublasLtMatmulAlgo_t &algorithm) {
  int32_t numbers[3] = {};
  cublasLtMatmulAlgoConfigAttributes_t attributes[] = {
      CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID,
      CUBLASLT_ALGO_CONFIG_SPLITK_NUM};
  for (int i = 0; i < 3; ++i)
    cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attributes[i], &numbers[i],
                                         sizeof(numbers[i]), nullptr);
  return concat("algorithm ", numbers[0], ", tile ", numbers[1], ", split ",
                numbers[2]);
}

} // namespace

std::string describeCublas(int status) {
  return std::string("cuBLASLt: ") +
         cublasLtGetStatusString(static_cast<cublasStatus_t>(status));
}

CudaStatus RealCudaApi::planGemm(const CudaGemmShape &shape, size_t cap,
                                 CudaGemm &gemm, CudaChoice &choice) {
  cudaDataType_t types[3];
  if (!parseType(shape.dtypeA, types[0]) ||
      !parseType(shape.dtypeB, types[1]) ||
      !parseType(shape.dtypeC, types[2])) {
    choice.algorithm = "unsupported types";
    return cudaRefused;
  }
  auto plan = std::make_unique<Gemm>();
  if (CudaStatus status = handleOfDevice(plan->handle))
    return status;
  cublasStatus_t status = plan->describe(shape, types);
  cublasLtMatmulHeuristicResult_t wide = {}, narrow = {};
  size_t alignments[] = {size_t(dtypeBytes(shape.dtypeA)),
                         size_t(dtypeBytes(shape.dtypeB)),
                         size_t(dtypeBytes(shape.dtypeC))};
  if (!status)
    status = plan->choose({cap, wideAlignments, exactParts}, wide);
  if (!status)
    status = plan->choose({cap, alignments, exactParts}, narrow);
  // The library has no algorithm within the cap, or no such combination of
  // types. The caller has its own kernel; other errors are failures.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
      status == CUBLAS_STATUS_INVALID_VALUE) {
    choice.algorithm = describeCublas(status);
    return cudaRefused;
  }
  if (status)
    return checked(status);
  plan->wide = wide.algo;
  plan->narrow = narrow.algo;
  // Which algorithm runs is known only at the call, so the workspace suits
  // both.
  plan->narrowBytes = narrow.workspaceSize;
  plan->workspaceBytes = std::max(wide.workspaceSize, plan->narrowBytes);
  choice.workspaceBytes = plan->workspaceBytes;
  choice.algorithm = algorithmText(wide.algo);
  gemm = plan.release();
  return cudaOk;
}

CudaStatus RealCudaApi::gemm(CudaGemm gemm, const CudaGemmOperands &of,
                             void *workspace, CudaStream stream) {
  Gemm &plan = *static_cast<Gemm *>(gemm);
  bool sums = plan.epilogue == CUBLASLT_EPILOGUE_BGRADA ||
              plan.epilogue == CUBLASLT_EPILOGUE_BGRADB;
  const void *row = sums ? of.extra : of.bias,
             *input = of.input ? of.input
                      : sums   ? nullptr
                               : of.extra,
             *start = of.addend ? of.addend : of.c;
  // The union of all low bits: aligned only if every address is.
  uintptr_t begins = 0;
  for (const void *address :
       {of.a, of.b, row, start, const_cast<const void *>(of.c)})
    begins |= reinterpret_cast<uintptr_t>(address);
  if (cublasStatus_t status = plan.setAddresses(row, input))
    return checked(status);
  // Scale factors have the compute type: f64 for f64, otherwise f32.
  double alpha64 = 1, beta64 = plan.beta;
  float alpha = 1, beta = float(plan.beta);
  const void *scales[] = {&alpha, &beta};
  const void *scales64[] = {&alpha64, &beta64};
  const void *const *scale = plan.inF64 ? scales64 : scales;
  return checked(cublasLtMatmul(
      plan.handle, plan.product, scale[0], of.b, plan.first, of.a, plan.second,
      scale[1], start, plan.result, of.c, plan.result,
      begins % wideAlignment ? &plan.narrow : &plan.wide, workspace,
      plan.workspaceBytes, static_cast<cudaStream_t>(stream)));
}

CudaStatus RealCudaApi::destroyGemm(CudaGemm gemm) {
  delete static_cast<Gemm *>(gemm);
  return cudaOk;
}

CudaStatus RealCudaApi::listGemms(CudaGemm gemm, size_t cap, int most,
                                  bool roundsParts,
                                  std::vector<std::string> &codes) {
  std::vector<cublasLtMatmulHeuristicResult_t> results(
      static_cast<size_t>(most));
  int found = 0;
  Bounds bounds = {cap, wideAlignments, schemesOf(roundsParts)};
  cublasStatus_t status =
      static_cast<Gemm *>(gemm)->list(bounds, most, results.data(), found);
  codes.clear();
  for (int i = 0; i < found && !status; ++i)
    if (results[size_t(i)].state == CUBLAS_STATUS_SUCCESS)
      codes.push_back(codeOf(results[size_t(i)].algo));
  return checked(status);
}

CudaStatus RealCudaApi::chooseGemm(CudaGemm gemm, size_t cap, bool roundsParts,
                                   const std::string &code,
                                   CudaChoice &choice) {
  Gemm &plan = *static_cast<Gemm *>(gemm);
  cublasLtMatmulAlgo_t algorithm;
  cublasLtMatmulHeuristicResult_t fit = {};
  if (!parseCode(code, algorithm)) {
    choice.algorithm = "no algorithm of this version of cuBLASLt";
    return cudaRefused;
  }
  cublasStatus_t status = cublasLtMatmulAlgoCheck(
      plan.handle, plan.product, plan.first, plan.second, plan.result,
      plan.result, &algorithm, &fit);
  if (status || fit.state || fit.workspaceSize > cap) {
    choice.algorithm = "an algorithm that does not fit this product";
    return cudaRefused;
  }
  if (!addsPartsBy(algorithm, schemesOf(roundsParts))) {
    choice.algorithm = "an algorithm that rounds partial sums";
    return cudaRefused;
  }
  plan.wide = algorithm;
  plan.workspaceBytes = std::max(fit.workspaceSize, plan.narrowBytes);
  choice = {plan.workspaceBytes, algorithmText(algorithm)};
  return cudaOk;
}

} // namespace fsdpc::runtime

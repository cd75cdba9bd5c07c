// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A stand-in of cuBLASLt. Descriptors are kept as they were set, and a product
// is checked against them: shapes, types, addresses and the workspace. Nothing
// is computed. The chosen algorithm holds the alignments that it was asked for,
// so that a call with lesser ones is noticed.
//
// Rules: cuBLAS Library 13, "Using the cuBLASLt API": cublasLtMatmul(),
// cublasLtMatmulAlgoGetHeuristic() and the attributes of its descriptors.
#include "runtime/emulation/handles.h"
#include "tests/runtime/cuda/vendor/cudart_state.h"

#include <cstdint>
#include <cstring>
#include <cublasLt.h>
#include <mutex>

using namespace fsdpc::vendor;
using fsdpc::runtime::emulation::Handles;

namespace {

struct Layout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t lead;
  int32_t count = 1;
  int64_t stride = 0;

  size_t width() const {
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
  }
  // From the first byte of the first matrix to the last of the last.
  size_t bytes() const {
    return (size_t(count - 1) * size_t(stride) + (columns - 1) * size_t(lead) +
            rows) *
           width();
  }
};
struct Product {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t operations[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void *bias = nullptr, *aux = nullptr;
  int32_t biasType = -1, auxType = -1; // that of the result
  int64_t auxLead = 0;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignments[4] = {256, 256, 256, 256}; // A, B, C, D
};
struct Device {
  int number;
};

// The stand-in writes this into an algorithm.
struct Algorithm {
  uint64_t workspace;
  uint32_t alignments[4];
  uint32_t scheme; // that adds partial sums
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

std::mutex mutex;
Handles<Device> handles;
Handles<Layout> layouts;
Handles<Product> products;
Handles<Preference> preferences;

// "sizeInBytes" must be the size of the attribute's type.
template <typename T>
bool take(T &value, const void *from, size_t bytes, const char *function) {
  if (!require(from && bytes == sizeof(T), function,
               "the size is that of the attribute's type"))
    return false;
  memcpy(&value, from, bytes);
  return true;
}

template <typename T>
cublasStatus_t destroy(Handles<T> &all, const void *handle,
                       const char *function) {
  bool failing = fails(function);
  std::lock_guard<std::mutex> lock(mutex);
  if (!require(bool(all.remove(handle)), function, "a live descriptor"))
    return CUBLAS_STATUS_INVALID_VALUE;
  return failing ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

// The table of supported types, as far as fsdpc uses it.
bool isSupported(const Product &p, const Layout &a, const Layout &b,
                 const Layout &c) {
  if (a.type != b.type)
    return false;
  if (p.compute == CUBLAS_COMPUTE_64F)
    return p.scale == CUDA_R_64F && a.type == CUDA_R_64F && c.type == a.type;
  return p.compute == CUBLAS_COMPUTE_32F && p.scale == CUDA_R_32F &&
         (c.type == a.type || c.type == CUDA_R_32F) &&
         (a.type == CUDA_R_32F || a.type == CUDA_R_16BF ||
          a.type == CUDA_R_16F);
}

// op(A) is m×k, op(B) k×n, C m×n, in column-major order.
bool fits(const Product &p, const Layout &a, const Layout &b, const Layout &c) {
  bool ta = p.operations[0] == CUBLAS_OP_T, tb = p.operations[1] == CUBLAS_OP_T;
  uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  uint64_t n = tb ? b.rows : b.columns, inner = tb ? b.columns : b.rows;
  bool leads = a.lead >= int64_t(a.rows) && b.lead >= int64_t(b.rows) &&
               c.lead >= int64_t(c.rows);
  return m == c.rows && n == c.columns && k == inner && leads &&
         a.count == c.count && b.count == c.count;
}

bool isAligned(const void *address, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

// cublasLtEpilogue_t: a bias or its gradient is a vector behind BIAS_POINTER,
// and GELU's input a matrix behind EPILOGUE_AUX_POINTER. Vectors have the
// length of D's rows, but those of BGRADB that of its columns.
bool hasVector(const Product &p) {
  return p.epilogue & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA |
                       CUBLASLT_EPILOGUE_BGRADB);
}
bool hasAux(const Product &p) {
  return p.epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
         p.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         p.epilogue == CUBLASLT_EPILOGUE_DGELU;
}

// CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: "Must be divisible by 8 and be no less
// than the number of rows in the output matrix."
bool auxFits(const Product &p, const Layout &d) {
  return !hasAux(p) || (p.auxType == int32_t(d.type) && p.auxLead % 8 == 0 &&
                        p.auxLead >= int64_t(d.rows) && isAligned(p.aux, 16));
}

} // namespace

extern "C" {

const char *cublasLtGetStatusString(cublasStatus_t) { return "an error"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  if (fails(__func__))
    return CUBLAS_STATUS_NOT_INITIALIZED;
  std::lock_guard<std::mutex> lock(mutex);
  *handle = static_cast<cublasLtHandle_t>(
      handles.add(std::make_shared<Device>(Device{currentDevice()})));
  return CUBLAS_STATUS_SUCCESS;
}

// ---- descriptors ----

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *handle,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t lead) {
  if (fails(__func__))
    return CUBLAS_STATUS_ALLOC_FAILED;
  if (!require(rows > 0 && columns > 0, __func__, "a matrix with elements"))
    return CUBLAS_STATUS_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(mutex);
  *handle = static_cast<cublasLtMatrixLayout_t>(
      layouts.add(std::make_shared<Layout>(Layout{type, rows, columns, lead})));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                 cublasLtMatrixLayoutAttribute_t attribute,
                                 const void *value, size_t bytes) {
  if (fails(__func__))
    return CUBLAS_STATUS_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(mutex);
  auto layout = layouts.find(handle);
  bool taken =
      layout &&
      (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
           ? take(layout->count, value, bytes, __func__)
           : attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET &&
                 take(layout->stride, value, bytes, __func__));
  return require(taken, __func__, "a live layout and a known attribute")
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  return destroy(layouts, handle, __func__);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *handle,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (fails(__func__))
    return CUBLAS_STATUS_ALLOC_FAILED;
  std::lock_guard<std::mutex> lock(mutex);
  *handle = static_cast<cublasLtMatmulDesc_t>(
      products.add(std::make_shared<Product>(Product{compute, scale})));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                               cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t bytes) {
  if (fails(__func__))
    return CUBLAS_STATUS_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(mutex);
  auto product = products.find(handle);
  bool taken = false;
  if (product)
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      taken = take(product->operations[0], value, bytes, __func__);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      taken = take(product->operations[1], value, bytes, __func__);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      taken = take(product->epilogue, value, bytes, __func__);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      taken = take(product->bias, value, bytes, __func__);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      taken = take(product->biasType, value, bytes, __func__);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      taken = take(product->aux, value, bytes, __func__);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      taken = take(product->auxType, value, bytes, __func__);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      taken = take(product->auxLead, value, bytes, __func__);
      break;
    default:
      break;
    }
  return require(taken, __func__, "a live product and a known attribute")
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  return destroy(products, handle, __func__);
}

cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *handle) {
  if (fails(__func__))
    return CUBLAS_STATUS_ALLOC_FAILED;
  std::lock_guard<std::mutex> lock(mutex);
  *handle = static_cast<cublasLtMatmulPreference_t>(
      preferences.add(std::make_shared<Preference>()));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t handle,
    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
    size_t bytes) {
  if (fails(__func__))
    return CUBLAS_STATUS_INVALID_VALUE;
  std::lock_guard<std::mutex> lock(mutex);
  auto preference = preferences.find(handle);
  int operand = int(attribute) - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  bool taken = false;
  if (preference && attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    taken = take(preference->workspace, value, bytes, __func__);
  else if (preference &&
           attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    taken = take(preference->scheme, value, bytes, __func__);
  else if (preference && operand >= 0 && operand < 4)
    taken = take(preference->alignments[operand], value, bytes, __func__);
  return require(taken, __func__, "a live preference and a known attribute")
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  return destroy(preferences, handle, __func__);
}

// ---- products ----

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t productOf,
    cublasLtMatrixLayout_t aOf, cublasLtMatrixLayout_t bOf,
    cublasLtMatrixLayout_t cOf, cublasLtMatrixLayout_t dOf,
    cublasLtMatmulPreference_t preferenceOf, int requested,
    cublasLtMatmulHeuristicResult_t *results, int *found) {
  if (fails(__func__))
    return CUBLAS_STATUS_INTERNAL_ERROR;
  *found = 0;
  std::lock_guard<std::mutex> lock(mutex);
  auto device = handles.find(handle);
  auto product = products.find(productOf);
  auto a = layouts.find(aOf), b = layouts.find(bOf), c = layouts.find(cOf);
  auto preference = preferences.find(preferenceOf);
  bool alive = device && product && a && b && c && preference;
  if (!require(
          alive && cOf == dOf && requested > 0, __func__,
          "live descriptors, one layout for C and D, and room for a result") ||
      !require(fits(*product, *a, *b, *c), __func__,
               "matrices that can be multiplied"))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!isSupported(*product, *a, *b, *c))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!require((!hasVector(*product) || product->bias) &&
                   (!hasAux(*product) || product->aux),
               __func__, "the operands of an epilogue have addresses") ||
      !require(auxFits(*product, *c), __func__,
               "GELU's input has the result's type, and rows that fit"))
    return CUBLAS_STATUS_INVALID_VALUE;
  // Algorithms that split k are the later ones, and may be masked: the third
  // rounds its parts, and the fourth adds them in place, in varying order.
  uint32_t scheme = preference->scheme;
  int allowed = 2 + ((scheme & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0) +
                ((scheme & CUBLASLT_REDUCTION_SCHEME_INPLACE) != 0);
  constexpr uint32_t schemes[] = {
      CUBLASLT_REDUCTION_SCHEME_NONE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
      CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, CUBLASLT_REDUCTION_SCHEME_INPLACE};
  *found = std::min(requested, allowed);
  for (int i = 0; i < *found; ++i) {
    Algorithm chosen = {
        std::min<uint64_t>(preference->workspace, 4096u << i), {}, schemes[i]};
    memcpy(chosen.alignments, preference->alignments, sizeof chosen.alignments);
    results[i] = {};
    memcpy(&results[i].algo, &chosen, sizeof chosen);
    results[i].workspaceSize = chosen.workspace;
    results[i].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

// "AlgoCheck() returns CUBLAS_STATUS_NOT_SUPPORTED for an algorithm that is not
// supported on the device", which here is one that this file did not write.
cublasStatus_t
cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t productOf,
                        cublasLtMatrixLayout_t aOf, cublasLtMatrixLayout_t bOf,
                        cublasLtMatrixLayout_t cOf, cublasLtMatrixLayout_t dOf,
                        const cublasLtMatmulAlgo_t *algo,
                        cublasLtMatmulHeuristicResult_t *result) {
  if (fails(__func__))
    return CUBLAS_STATUS_INTERNAL_ERROR;
  std::lock_guard<std::mutex> lock(mutex);
  auto product = products.find(productOf);
  auto a = layouts.find(aOf), b = layouts.find(bOf), c = layouts.find(cOf);
  bool alive = handles.find(handle) && product && a && b && c;
  if (!require(alive && cOf == dOf && algo && result, __func__,
               "live descriptors, in place") ||
      !require(fits(*product, *a, *b, *c), __func__,
               "matrices that can be multiplied"))
    return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm chosen;
  memcpy(&chosen, algo, sizeof chosen);
  if (chosen.alignments[0] == 0 || chosen.workspace == 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {};
  result->algo = *algo;
  result->workspaceSize = chosen.workspace;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *algo,
    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value, size_t bytes,
    size_t *) {
  if (fails(__func__))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!require(bytes == sizeof(int32_t), __func__, "the size of an int32_t"))
    return CUBLAS_STATUS_INVALID_VALUE;
  memset(value, 0, bytes);
  Algorithm chosen;
  memcpy(&chosen, algo, sizeof chosen);
  if (attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)
    memcpy(value, &chosen.scheme, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// Scales are read in the scale type. The product here is always A · B, added to
// C or not.
static bool scalesFit(const Product &product, const void *alpha,
                      const void *beta) {
  auto read = [&](const void *value) {
    return product.scale == CUDA_R_64F ? *static_cast<const double *>(value)
                                       : *static_cast<const float *>(value);
  };
  return read(alpha) == 1 && (read(beta) == 0 || read(beta) == 1);
}

cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t productOf,
               const void *alpha, const void *a, cublasLtMatrixLayout_t aOf,
               const void *b, cublasLtMatrixLayout_t bOf, const void *beta,
               const void *c, cublasLtMatrixLayout_t cOf, void *d,
               cublasLtMatrixLayout_t dOf, const cublasLtMatmulAlgo_t *algo,
               void *workspace, size_t bytes, cudaStream_t stream) {
  if (fails(__func__))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  std::lock_guard<std::mutex> lock(mutex);
  auto device = handles.find(handle);
  auto product = products.find(productOf);
  auto la = layouts.find(aOf), lb = layouts.find(bOf), lc = layouts.find(cOf);
  // C and D may differ; with one layout they may also be the same.
  if (!require(device && product && la && lb && lc && cOf == dOf, __func__,
               "live descriptors, one layout for C and D") ||
      !require(device->number == currentDevice() &&
                   deviceOf(stream) == device->number,
               __func__, "handle, stream and thread have one device") ||
      !require(scalesFit(*product, alpha, beta), __func__,
               "scales of the scale type"))
    return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm chosen;
  memcpy(&chosen, algo, sizeof chosen);
  const void *operands[] = {a, b, c, d};
  const Layout *shapes[] = {la.get(), lb.get(), lc.get(), lc.get()};
  for (int i = 0; i < 4; ++i)
    if (!require(isAligned(operands[i], chosen.alignments[i]) &&
                     spans(operands[i], shapes[i]->bytes(), device->number),
                 __func__,
                 "operands aligned as the algorithm was asked for, "
                 "within memory of the device"))
      return CUBLAS_STATUS_INVALID_VALUE;
  size_t length =
      product->epilogue == CUBLASLT_EPILOGUE_BGRADB ? lc->columns : lc->rows;
  if (!require(!hasVector(*product) ||
                   (product->biasType == int32_t(lc->type) &&
                    spans(product->bias, length * lc->width(), device->number)),
               __func__, "a vector of the result's type and length") ||
      !require(auxFits(*product, *lc) &&
                   (!hasAux(*product) ||
                    spans(product->aux, lc->bytes(), device->number)),
               __func__, "GELU's input within memory of the device") ||
      !require(bytes >= chosen.workspace && isAligned(workspace, 256) &&
                   spans(workspace, bytes, device->number),
               __func__, "an aligned workspace as large as the algorithm's"))
    return CUBLAS_STATUS_INVALID_VALUE;
  enqueue(stream);
  return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"

// Handles are kept by design: one a device, until the process ends.
std::string fsdpc::vendor::aliveInCublas() {
  std::lock_guard<std::mutex> lock(mutex);
  size_t alive = layouts.size() + products.size() + preferences.size();
  return alive ? std::to_string(alive) + " descriptors of cuBLASLt; " : "";
}

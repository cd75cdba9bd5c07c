// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The verifier of attention's plan. The runtime trusts a plan's shapes and
// strides: a wrong one reads or writes elsewhere, and a fused library that it
// does not suit falls back to products, with other bits.
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/rt/RTDialect.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <cstdint>

using namespace mlir;
using namespace fsdpc::rt;

namespace {

using EmitError = llvm::function_ref<InFlightDiagnostic()>;

// Libraries count extents in 32 bits. Together with the bound on strides, this
// keeps sums of strides times extents within 64 bits.
constexpr int64_t kLargestExtent = INT32_MAX, kMostElements = int64_t(1) << 48;

// One operand or result: its strides, and the extents of batch, heads and rows.
struct Tensor {
  StringRef name;
  DenseI64ArrayAttr strides;
  std::array<int64_t, 3> extents;
  int64_t width;
  bool isResult = false;
};

LogicalResult verifyExtent(EmitError emitError, StringRef what,
                           int64_t extent) {
  if (extent < 1)
    return emitError() << what << " " << extent << " is less than 1";
  if (extent > kLargestExtent)
    return emitError() << what << " " << extent << " is greater than "
                       << kLargestExtent;
  return success();
}

LogicalResult verifyShapes(EmitError emitError, ArrayRef<int64_t> query,
                           ArrayRef<int64_t> key, int64_t valueWidth) {
  if (query.size() != 4 || key.size() != 4)
    return emitError() << "the shapes of query and key must have 4 extents, "
                          "not "
                       << query.size() << " and " << key.size();
  for (int64_t extent : llvm::concat<const int64_t>(query, key))
    if (failed(verifyExtent(emitError, "extent", extent)))
      return failure();
  if (failed(verifyExtent(emitError, "value width", valueWidth)))
    return failure();
  if (query[0] != key[0] || query[3] != key[3])
    return emitError() << "query [" << query << "] and key [" << key
                       << "] must agree in batch and width";
  if (query[1] % key[1] != 0)
    return emitError() << "query heads, " << query[1]
                       << ", must be a multiple of the key heads, " << key[1];
  return success();
}

bool isComputed(Type element) {
  return element.isF32() || element.isBF16() || element.isF16();
}

LogicalResult verifyStrides(EmitError emitError, StringRef name,
                            ArrayRef<int64_t> strides,
                            ArrayRef<int64_t> extents) {
  if (strides.size() != extents.size())
    return emitError() << name << " must have " << extents.size()
                       << " strides, not " << strides.size();
  for (auto [stride, extent] : llvm::zip_equal(strides, extents)) {
    if (stride < 0)
      return emitError() << "stride " << stride << " of " << name
                         << " is negative";
    if (stride > kMostElements / extent)
      return emitError() << "stride " << stride << " of " << name
                         << " spans more than " << kMostElements << " elements";
  }
  return success();
}

// Rows that overlap would be written by several threads at once. Taken from the
// smallest stride on, each must step over all that the smaller ones span. So
// the bound on strides also bounds the number of rows.
LogicalResult verifyApart(EmitError emitError, const Tensor &tensor) {
  SmallVector<std::pair<int64_t, int64_t>> axes;
  for (auto [stride, extent] :
       llvm::zip_equal(tensor.strides.asArrayRef(), tensor.extents))
    if (extent > 1)
      axes.push_back({stride, extent});
  llvm::sort(axes);
  int64_t span = tensor.width;
  for (auto [stride, extent] : axes) {
    if (stride < span)
      return emitError() << "stride " << stride << " of " << tensor.name
                         << " lets its rows overlap: it must be at least "
                         << span;
    span += stride * (extent - 1);
  }
  return success();
}

// Fused attention loads 16 bytes at a time.
LogicalResult verifyFused(EmitError emitError, Type element,
                          ArrayRef<Tensor> tensors, bool causal, bool hasMask) {
  if (element.isF32())
    return emitError() << "library 'cudnn' computes bf16 and f16, not "
                       << element;
  if (hasMask)
    return emitError() << "library 'cudnn' takes no mask";
  int64_t queries = tensors[0].extents[2], keys = tensors[1].extents[2];
  if (causal && queries != keys)
    return emitError() << "library 'cudnn' computes no causal attention of "
                       << queries << " queries and " << keys << " keys";
  constexpr int64_t aligned = 16, widest = 128;
  int64_t bytes = fsdpc::nn::elementBytes(element);
  for (const Tensor &tensor : tensors) {
    if (tensor.width > widest || tensor.width * bytes % aligned != 0)
      return emitError() << "library 'cudnn' takes widths that are a multiple "
                            "of 8 up to "
                         << widest << ", but " << tensor.name << " has width "
                         << tensor.width;
    for (int64_t stride : tensor.strides.asArrayRef())
      if (stride * bytes % aligned != 0)
        return emitError() << "library 'cudnn' needs rows that are aligned to "
                           << aligned << " bytes, but " << tensor.name
                           << " has stride " << stride;
  }
  return success();
}

} // namespace

LogicalResult AttentionPlanAttr::verify(
    EmitError emitError, Type element, DenseI64ArrayAttr queryShape,
    DenseI64ArrayAttr keyShape, int64_t valueWidth, FloatAttr scale,
    bool causal, DenseI64ArrayAttr strideQuery, DenseI64ArrayAttr strideKey,
    DenseI64ArrayAttr strideValue, DenseI64ArrayAttr strideOutput, Type mask,
    DenseI64ArrayAttr strideMask, DenseI64ArrayAttr strideGrad,
    DenseI64ArrayAttr strideDQuery, DenseI64ArrayAttr strideDKey,
    DenseI64ArrayAttr strideDValue, StringAttr library) {
  ArrayRef<int64_t> query = queryShape.asArrayRef(),
                    key = keyShape.asArrayRef();
  if (!isComputed(element))
    return emitError() << "element type must be f32, bf16 or f16, not "
                       << element;
  if (failed(verifyShapes(emitError, query, key, valueWidth)))
    return failure();
  // GPUs multiply by it in f32.
  if (!std::isfinite(static_cast<float>(scale.getValueAsDouble())))
    return emitError() << "scale " << scale.getValueAsDouble()
                       << " is not finite in f32";

  std::array<int64_t, 3> queries = {query[0], query[1], query[2]},
                         keys = {key[0], key[1], key[2]};
  int64_t width = query[3];
  SmallVector<Tensor> tensors = {
      {"query", strideQuery, queries, width},
      {"key", strideKey, keys, width},
      {"value", strideValue, keys, valueWidth},
      {"output", strideOutput, queries, valueWidth, !strideGrad}};
  if (strideGrad)
    tensors.append({{"grad", strideGrad, queries, valueWidth},
                    {"dquery", strideDQuery, queries, width, true},
                    {"dkey", strideDKey, keys, width, true},
                    {"dvalue", strideDValue, keys, valueWidth, true}});
  for (const Tensor &tensor : tensors)
    if (failed(verifyStrides(emitError, tensor.name, tensor.strides,
                             tensor.extents)) ||
        (tensor.isResult && failed(verifyApart(emitError, tensor))))
      return failure();

  if (mask && !mask.isInteger(1) && !isComputed(mask))
    return emitError() << "mask must be i1, f32, bf16 or f16, not " << mask;
  if (mask && failed(verifyStrides(emitError, "mask", strideMask,
                                   {query[0], query[1], query[2], key[2]})))
    return failure();
  StringRef by = library ? library.getValue() : "products";
  if (by != "cudnn" && by != "products")
    return emitError() << "library '" << by
                       << "' computes no attention; use 'cudnn' or "
                          "'products'";
  return by == "cudnn"
             ? verifyFused(emitError, element, tensors, causal, bool(mask))
             : success();
}

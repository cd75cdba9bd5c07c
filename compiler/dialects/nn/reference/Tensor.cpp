// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The storage of the reference interpreter: conversion between attributes and
// tensors, and rounding to element types. The importer folds masks of millions
// of elements, so common types are copied from and to the attribute's bytes.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/reference/Reference.h"

#include <cstring>

using namespace mlir;

namespace fsdpc::nn {

RankedTensorType ReferenceTensor::type() const {
  return RankedTensorType::get(shape, element);
}

ReferenceTensor ReferenceTensor::zeros(RankedTensorType type) {
  ReferenceTensor tensor;
  tensor.shape.assign(type.getShape().begin(), type.getShape().end());
  tensor.element = type.getElementType();
  if (tensor.isFloat())
    tensor.floats.resize(type.getNumElements());
  else
    tensor.ints.resize(type.getNumElements());
  return tensor;
}

/// i1 and unsigned types are zero-extended, others sign-extended.
static bool isUnsigned(Type element) {
  return element.isInteger(1) || element.isUnsignedInteger();
}

/// Copies elements that a dense attribute stores as `T`. Through APFloat and
/// APInt each would cost some 20 ns.
template <typename T, typename To>
static void copyRaw(DenseElementsAttr attr, std::vector<To> &to) {
  const char *from = attr.getRawData().data();
  for (To &value : to) {
    T stored;
    // The attribute's bytes need not be aligned.
    memcpy(&stored, from, sizeof(T));
    value = stored;
    // A splat stores one element only.
    from += attr.isSplat() ? 0 : sizeof(T);
  }
}

// The converse of copyRaw. Elements fit `T` exactly, since they are rounded.
template <typename T, typename From>
static DenseElementsAttr rawAttr(RankedTensorType type,
                                 const std::vector<From> &from) {
  std::vector<T> values(from.begin(), from.end());
  return DenseElementsAttr::getFromRawBuffer(
      type, ArrayRef(reinterpret_cast<const char *>(values.data()),
                     values.size() * sizeof(T)));
}

// Widens every element to a double or to 64 bits, which holds each type of the
// dialect exactly.
FailureOr<ReferenceTensor> ReferenceTensor::fromAttr(ElementsAttr attr) {
  auto tensor = zeros(cast<RankedTensorType>(attr.getShapedType()));
  // The common types, without an APFloat or APInt per element.
  if (auto dense = dyn_cast<DenseElementsAttr>(attr)) {
    if (tensor.element.isF32()) {
      copyRaw<float>(dense, tensor.floats);
      return tensor;
    }
    if (tensor.element.isInteger(64)) {
      copyRaw<int64_t>(dense, tensor.ints);
      return tensor;
    }
    if (tensor.element.isSignlessInteger(32)) {
      copyRaw<int32_t>(dense, tensor.ints);
      return tensor;
    }
  }
  // Any other attribute may fail to produce values, such as a resource whose
  // blob has been elided from the text.
  if (tensor.isFloat()) {
    auto values = attr.tryGetValues<APFloat>();
    if (!values)
      return failure();
    bool lost;
    for (auto [to, value] : llvm::zip(tensor.floats, *values)) {
      APFloat wide = value;
      wide.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
      to = wide.convertToDouble();
    }
    return tensor;
  }
  auto values = attr.tryGetValues<APInt>();
  if (!values)
    return failure();
  bool extendZero = isUnsigned(tensor.element);
  for (auto [to, value] : llvm::zip(tensor.ints, *values))
    to = extendZero ? static_cast<int64_t>(value.getZExtValue())
                    : value.getSExtValue();
  return tensor;
}

DenseElementsAttr ReferenceTensor::toAttr() const {
  if (element.isF32())
    return rawAttr<float>(type(), floats);
  if (element.isInteger(64))
    return rawAttr<int64_t>(type(), ints);
  if (element.isSignlessInteger(32))
    return rawAttr<int32_t>(type(), ints);
  // MLIR stores i1 in a form of its own, which the overload for bool knows.
  if (element.isInteger(1)) {
    SmallVector<bool> values(ints.begin(), ints.end());
    return DenseElementsAttr::get(type(), values);
  }
  if (isFloat()) {
    // The 16-bit types and f64.
    const auto &semantics = cast<FloatType>(element).getFloatSemantics();
    SmallVector<APFloat> values;
    values.reserve(floats.size());
    bool lost;
    for (double value : floats) {
      values.emplace_back(value);
      values.back().convert(semantics, APFloat::rmNearestTiesToEven, &lost);
    }
    return DenseElementsAttr::get(type(), values);
  }
  SmallVector<APInt> values;
  values.reserve(ints.size());
  for (int64_t value : ints)
    values.emplace_back(element.getIntOrFloatBitWidth(), value,
                        /*isSigned=*/true, /*implicitTrunc=*/true);
  return DenseElementsAttr::get(type(), values);
}

// Through APFloat, which rounds to nearest even in one step. A detour through
// f32 would round twice.
static double roundTo(FloatType type, double value) {
  APFloat narrow(value);
  bool lost;
  narrow.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &lost);
  narrow.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lost);
  return narrow.convertToDouble();
}

// f64 and 64-bit integers need no rounding.
void ReferenceTensor::round() {
  if (element.isF32())
    for (double &value : floats)
      value = static_cast<float>(value);
  else if (isHalf(element))
    for (double &value : floats)
      value = roundTo(cast<FloatType>(element), value);
  else if (!isFloat() && !element.isInteger(64)) {
    // Wraps to the width: the upper bits are shifted out, and come back as
    // zeros or as the sign.
    unsigned shift = 64 - element.getIntOrFloatBitWidth();
    for (int64_t &value : ints) {
      uint64_t bits = static_cast<uint64_t>(value) << shift;
      value = isUnsigned(element) ? static_cast<int64_t>(bits >> shift)
                                  : static_cast<int64_t>(bits) >> shift;
    }
  }
}

} // namespace fsdpc::nn

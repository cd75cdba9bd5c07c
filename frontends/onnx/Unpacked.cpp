// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bits of a code are taken by a division and a remainder, which kernels
// compute where the weight is dequantised. A narrow float is a row of a table
// of all its codes.
#include "frontends/onnx/Unpacked.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/ElementTypes.h"
#include "frontends/onnx/ops/Gather.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Returns the codes of `bytes` as i32, the lowest bits of a byte first.
static Value codesOf(Emitter &b, Value bytes, int64_t bits, int64_t count) {
  Value x = b.cast(bytes, b.builder.getI32Type());
  if (bits == 8)
    return x;
  int64_t rows = shapeOf(x)[0], perByte = 8 / bits;
  SmallVector<Value> parts;
  for (int64_t k = 0; k < perByte; ++k) {
    Value shifted =
        k ? b.binary<nn::DivOp>(x, double(int64_t(1) << (bits * k))) : x;
    // Nothing is above the highest code of a byte.
    if (k + 1 < perByte)
      shifted = b.binary<nn::ModOp>(shifted, double(int64_t(1) << bits));
    parts.push_back(b.reshape(shifted, {rows, 1}));
  }
  Value codes = b.reshape(b.concat(parts, 1), {rows * perByte});
  // The last byte may have room for more.
  return b.slice(codes, 0, 0, count);
}

// Returns a table of all values of a narrow float, by their codes.
static Value tableOf(Emitter &b, int64_t onnxType) {
  unsigned bits = bitsOf(onnxType);
  SmallVector<float> values;
  for (unsigned code = 0; code < 1u << bits; ++code)
    values.push_back(static_cast<float>(
        llvm::APFloat(semanticsOf(onnxType), llvm::APInt(bits, code))
            .convertToDouble()));
  auto type =
      RankedTensorType::get({int64_t(values.size())}, b.builder.getF32Type());
  return b.constant(DenseElementsAttr::get(type, ArrayRef<float>(values)));
}

Value frontend::unpacked(Emitter &b, Value bytes, RankedTensorType type,
                         int64_t onnxType) {
  int64_t bits = bitsOf(onnxType);
  Value codes = b.reshape(codesOf(b, bytes, bits, type.getNumElements()),
                          type.getShape());
  if (isNarrowFloat(onnxType))
    return gatherRows(b, tableOf(b, onnxType), codes, std::nullopt);
  // Codes of negative numbers are above the others. This reads each once, so
  // that a kernel can read them from their byte.
  if (isSignedInteger(onnxType)) {
    double half = double(1 << (bits - 1));
    codes = b.binary<nn::AddOp>(codes, half);
    codes = b.binary<nn::ModOp>(codes, 2 * half);
    codes = b.binary<nn::SubOp>(codes, half);
  }
  return b.cast(codes, type.getElementType());
}

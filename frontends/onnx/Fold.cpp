// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Folds with nn's reference interpreter, so that the meaning of an op is
// written once.
#include "frontends/onnx/Fold.h"

#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/dialects/nn/reference/Reference.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// An attribute stores i1 elements as bits. The interpreter has one byte per
// bool, so both directions convert.
std::vector<char> frontend::bytesOf(DenseElementsAttr value) {
  auto type = cast<RankedTensorType>(value.getType());
  std::vector<char> bytes;
  bytes.reserve(nn::tensorBytes(type));
  if (type.getElementType().isInteger(1)) {
    for (bool element : value.getValues<bool>())
      bytes.push_back(element);
    return bytes;
  }
  ArrayRef<char> raw = value.getRawData();
  for (int64_t n = value.isSplat() ? type.getNumElements() : 1; n > 0; --n)
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  return bytes;
}

DenseElementsAttr frontend::constantFrom(RankedTensorType type,
                                         ArrayRef<char> bytes) {
  if (!type.getElementType().isInteger(1))
    return DenseElementsAttr::getFromRawBuffer(type, bytes);
  SmallVector<bool> elements;
  elements.reserve(bytes.size());
  for (char byte : bytes)
    elements.push_back(byte != 0);
  return DenseElementsAttr::get(type, elements);
}

// Returns INT64_MAX if the product is larger. Sizes are not negative.
static int64_t product(ArrayRef<int64_t> sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    if (llvm::MulOverflow(result, size, result))
      return INT64_MAX;
  return result;
}

// The interpreter computes each element of a product or of a window on its own.
// A slice reads all of its operand, since attributes are converted whole.
int64_t frontend::foldingCost(Operation *op) {
  auto shape = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getShape();
  };
  int64_t each = isa<nn::ElementwiseOpInterface>(op) ? 1 : 10, inner = 1;
  if (auto matmul = dyn_cast<nn::MatmulOp>(op))
    inner = shape(matmul.getLhs()).end()[matmul.getTransposeA() ? -2 : -1];
  else if (auto conv = dyn_cast<nn::Conv2dOp>(op))
    inner = product(shape(conv.getFilter()).drop_front());
  else if (auto pool = dyn_cast<nn::AvgPool2dOp>(op))
    inner = product(pool.getKernel());
  int64_t cost = product({product(shape(op->getResult(0))), inner, each});
  // A reduction walks over its operand; a slice converts more than it keeps.
  int64_t read = isa<nn::ReduceOp, nn::PadOp>(op) ? 10 : each == 1 ? 1 : 2;
  for (Value operand : op->getOperands())
    if (llvm::AddOverflow(cost, product({product(shape(operand)), read}), cost))
      return INT64_MAX;
  return cost;
}

DenseElementsAttr
// An op that the interpreter does not know is not an error: it stays in the
// graph.
frontend::foldConstants(Operation *op, ArrayRef<DenseElementsAttr> operands) {
  nn::ReferenceTensors tensors;
  for (DenseElementsAttr operand : operands) {
    FailureOr<nn::ReferenceTensor> tensor =
        nn::ReferenceTensor::fromAttr(operand);
    if (failed(tensor))
      return nullptr;
    tensors.push_back(std::move(*tensor));
  }
  FailureOr<nn::ReferenceTensors> results = nn::evaluate(op, tensors);
  return succeeded(results) ? results->front().toAttr() : nullptr;
}

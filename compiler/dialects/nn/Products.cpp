// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells what a library can compute in the epilogue of a product, by the ops
// that surround it.
#include "compiler/dialects/nn/Products.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;

namespace fsdpc::nn {

bool isProduct(Operation *op) { return isa<MatmulOp, FusedMatmulOp>(op); }

Matrices resultsOf(Operation *product) {
  ArrayRef<int64_t> shape = shapeOf(product->getResult(0));
  int64_t count = 1, rows = shape[shape.size() - 2];
  for (int64_t extent : shape.drop_back(2))
    count *= extent;
  if (isOneProduct(product->getOperand(0), product->getOperand(1),
                   product->hasAttr("transpose_a")))
    rows *= std::exchange(count, 1);
  return {count, rows, shape.back()};
}

Value biasOf(MatmulOp product) {
  Value start = product.getAccumulator();
  bool isRow = start && tensorType(start).getRank() == 1;
  return isRow ? start : Value();
}

Value overwrittenBy(MatmulOp product) {
  return biasOf(product) ? Value() : product.getAccumulator();
}

Value rowOf(Value value) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  bool isRow =
      broadcast && shapeOf(broadcast.getInput()) == shapeOf(value).take_back(1);
  return isRow ? broadcast.getInput() : Value();
}

// cuBLASLt's GELU is the one by tanh.
template <typename GeluOp> static bool isLibrarys(GeluOp gelu) {
  ArrayRef<int64_t> shape = shapeOf(gelu.getInput());
  return gelu.getForm() == GeluForm::tanh && shape.size() >= 2 &&
         shape.back() % kGeluRowMultiple == 0;
}

bool hasEpilogue(GeluOp gelu) { return isLibrarys(gelu); }
bool hasEpilogue(GeluGradOp grad) { return isLibrarys(grad); }

MatmulOp endedProduct(GeluOp gelu) {
  Value sums = gelu.getInput();
  if (auto add = sums.getDefiningOp<AddOp>())
    sums = rowOf(add.getRhs())   ? add.getLhs()
           : rowOf(add.getLhs()) ? add.getRhs()
                                 : sums;
  auto product = sums.getDefiningOp<MatmulOp>();
  bool ends = product && hasEpilogue(gelu) && !overwrittenBy(product) &&
              isOneProduct(product.getLhs(), product.getRhs(),
                           product.getTransposeA()) &&
              (sums == gelu.getInput() || sums.hasOneUse());
  return ends ? product : MatmulOp();
}

bool sumsRows(ReduceOp reduce) {
  ArrayRef<int64_t> axes = reduce.getAxes();
  return reduce.getKind() == ReduceKind::sum && !axes.empty() &&
         int64_t(axes.size()) + 1 == tensorType(reduce.getInput()).getRank() &&
         axes.back() == int64_t(axes.size()) - 1;
}

} // namespace fsdpc::nn

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products: MatMul and Gemm. Both become nn.matmul, whose operands are
// batches of matrices with transposes as flags. Biases stay
// separate additions here; fuse-epilogues adds them to the product where the
// target's library can.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/Node.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Batch dimensions broadcast. numpy.matmul's rules.
static LogicalResult matMul(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Emitter &b = node.b;
  Value lhs = node.input(0), rhs = node.input(1);
  if (failed(node.expectFloat(lhs)) || failed(node.expectFloat(rhs)))
    return failure();
  if (rankOf(lhs) == 0 || rankOf(rhs) == 0)
    return node.refuse("inputs must have rank 1 or more");
  // A vector is a row on the left and a column on the right.
  bool row = rankOf(lhs) == 1, column = rankOf(rhs) == 1;
  if (row)
    lhs = b.reshape(lhs, {1, shapeOf(lhs)[0]});
  if (column)
    rhs = b.reshape(rhs, {shapeOf(rhs)[0], 1});
  int64_t m = shapeOf(lhs).end()[-2], k = shapeOf(lhs).back(),
          n = shapeOf(rhs).back();
  if (shapeOf(rhs).end()[-2] != k)
    return node.refuse("inner dimensions " + Twine(k) + " and " +
                       Twine(shapeOf(rhs).end()[-2]) + " differ");
  std::optional<Shape> shape =
      broadcastShapes(shapeOf(lhs).drop_back(2), shapeOf(rhs).drop_back(2));
  if (!shape)
    return node.refuse("batch dimensions do not broadcast");
  shape->append({m, n});
  if (failed(node.checkShape(*shape)))
    return failure();
  // nn.matmul broadcasts the batch dimensions itself.
  Value result = b.matmul(lhs, rhs, *shape);
  if (column)
    shape->pop_back();
  if (row)
    shape->erase(shape->end() - (column ? 1 : 2));
  return node.result(b.reshape(result, *shape));
}

// alpha · A · B + beta · C, where C broadcasts. torch.nn.Linear exports as Gemm
// with transB on two-dimensional inputs.
static LogicalResult gemm(Node &node) {
  if (failed(node.expectInputs(2, 3)))
    return failure();
  Emitter &b = node.b;
  Value lhs = node.input(0), rhs = node.input(1), bias = node.input(2);
  if (failed(node.expectFloat(lhs)) || failed(node.expectFloat(rhs)))
    return failure();
  if (rankOf(lhs) != 2 || rankOf(rhs) != 2)
    return node.refuse("inputs must be matrices");
  bool transA = node.getInt("transA", 0), transB = node.getInt("transB", 0);
  int64_t m = shapeOf(lhs)[transA], k = shapeOf(lhs)[!transA];
  int64_t n = shapeOf(rhs)[!transB];
  if (shapeOf(rhs)[transB] != k)
    return node.refuse("inner dimensions " + Twine(k) + " and " +
                       Twine(shapeOf(rhs)[transB]) + " differ");
  if (failed(node.checkShape({m, n})))
    return failure();
  Value result = b.matmul(lhs, rhs, {m, n}, transA, transB);
  double alpha = node.getFloat("alpha", 1), beta = node.getFloat("beta", 1);
  if (alpha != 1)
    result = b.binary<nn::MulOp>(result, alpha);
  if (!bias || beta == 0)
    return node.result(result);
  if (failed(node.expectFloat(bias)))
    return failure();
  if (!node.broadcastsTo(bias, {m, n}))
    return node.refuse(
        "the bias does not broadcast to the shape of the product");
  if (beta != 1)
    bias = b.binary<nn::MulOp>(bias, beta);
  return node.result(b.binary<nn::AddOp>(result, b.broadcast(bias, {m, n})));
}

void frontend::registerProduct(HandlerTable &table) {
  table.add("MatMul", 1, matMul);
  table.add("Gemm", 7, gemm);
}

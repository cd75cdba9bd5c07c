// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Det, by Gaussian elimination with pivots: unrolled, one step per column. The
// pivot's row is chosen by its position, so the gradient flows through the
// elements of the row that was chosen.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/Node.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using nn::Predicate;
using nn::ReduceKind;

// Returns 1 in the first row whose element of the first column has the largest
// absolute value, else 0: B×n×1. Partial pivoting bounds the growth of rounding
// errors. The first of equal rows is taken, so the result does not depend on
// the order of a reduction.
static Value pivotRow(Emitter &b, Value column) {
  Value magnitude = b.unary<nn::AbsOp>(column);
  Value most =
      b.broadcast(b.reduce(ReduceKind::max, magnitude, {1}), shapeOf(column));
  Value places = b.iota(shapeOf(column), 1);
  Value attained = b.select(b.compare(Predicate::eq, magnitude, most), places,
                            b.like(places, double(shapeOf(column)[1])));
  Value first =
      b.broadcast(b.reduce(ReduceKind::min, attained, {1}), shapeOf(column));
  return b.compare(Predicate::eq, places, first);
}

// Eliminates the first column of B×n×n: multiplies `result` (B×1×1) by the
// pivot, whose row changes places with the first one, and returns the
// (n-1)×(n-1) matrices that are left. An exchange of rows changes the sign of
// the determinant.
static Value eliminate(Emitter &b, Value matrix, Value &result) {
  int64_t batch = shapeOf(matrix)[0], n = shapeOf(matrix)[1];
  Value column = b.slice(matrix, 2, 0, 1);
  Value isPivot = pivotRow(b, column);
  Value isRow = b.broadcast(isPivot, shapeOf(matrix));
  Value row = b.reduce(ReduceKind::sum,
                       b.select(isRow, matrix, b.like(matrix, 0)), {1});
  Value pivot = b.slice(row, 2, 0, 1);
  Value isFirst = b.slice(isPivot, 1, 0, 1);
  result = b.binary<nn::MulOp>(
      result, b.select(isFirst, pivot, b.unary<nn::NegOp>(pivot)));
  // A column of zeros has made the result 0 already.
  Value isZero = b.compare(Predicate::eq, pivot, b.like(pivot, 0));
  Value divisor = b.select(isZero, b.like(pivot, 1), pivot);
  Value factor =
      b.binary<nn::DivOp>(column, b.broadcast(divisor, shapeOf(column)));
  Value left = b.binary<nn::SubOp>(
      matrix, b.binary<nn::MulOp>(b.broadcast(factor, shapeOf(matrix)),
                                  b.broadcast(row, shapeOf(matrix))));
  // The first row stands where the pivot's was.
  Value first = b.broadcast(b.slice(left, 1, 0, 1), shapeOf(matrix));
  left = b.select(isRow, first, left);
  Shape ones(3, 1);
  return b.slice(left, {0, 1, 1}, ones, {batch, n - 1, n - 1});
}

static LogicalResult det(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  if (rankOf(x) < 2 || shapeOf(x).back() != shapeOf(x).end()[-2] ||
      tensorType(x).getNumElements() == 0)
    return node.refuse("the input must be square matrices");
  int64_t n = shapeOf(x).back();
  // Unrolled steps cost some twenty ops each.
  constexpr int64_t most = 64;
  if (n > most)
    return node.refuse("the matrices have " + Twine(n) + " rows; at most " +
                       Twine(most) + " are supported");
  int64_t batch = tensorType(x).getNumElements() / (n * n);
  Value matrix = b.reshape(x, {batch, n, n});
  Value result = b.splat(tensorType(x).clone({batch, 1, 1}), 1);
  for (int64_t size = n; size > 1; --size)
    matrix = eliminate(b, matrix, result);
  result = b.binary<nn::MulOp>(result, matrix);
  return node.result(b.reshape(result, shapeOf(x).drop_back(2)));
}

void frontend::registerDeterminant(HandlerTable &table) {
  table.add("Det", 11, det);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops of ai.onnx.ml that are arithmetic on tensors.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/ops/Gather.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Takes elements of the last axis. The indices are read as a list, whatever
// their shape.
static LogicalResult arrayFeatureExtractor(Node &node) {
  if (failed(node.expectInputs(2, 2)) ||
      failed(expectIndices(node, node.input(1))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0), indices = node.input(1);
  if (rankOf(x) < 1)
    return node.refuse("the input must have rank 1 or more");
  int64_t axis = rankOf(x) - 1, count = tensorType(indices).getNumElements();
  if (failed(expectInside(node, indices, axis, shapeOf(x)[axis])))
    return failure();
  Value y = gatherAlong(b, x, b.reshape(indices, {count}), axis);
  // ONNX makes a matrix of a vector.
  return node.result(axis == 0 ? b.reshape(y, {1, count}) : y);
}

// 1 above the threshold, else 0. The comparison has no gradient, and none
// flows.
static LogicalResult binarizer(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  Value isAbove =
      b.compare(nn::Predicate::gt, x, b.like(x, node.getFloat("threshold", 0)));
  return node.result(b.cast(isAbove, elementOf(x)));
}

void frontend::registerClassical(HandlerTable &table) {
  table.add("ai.onnx.ml.ArrayFeatureExtractor", 1, arrayFeatureExtractor);
  table.add("ai.onnx.ml.Binarizer", 1, binarizer);
}

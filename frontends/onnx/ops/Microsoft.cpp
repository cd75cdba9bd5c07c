// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops of onnxruntime's own domain that its optimizer makes of standard ones,
// and which are then found in its training models.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/ops/Unary.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Gelu of x + bias. The bias, of the last dimension, may be missing.
template <nn::GeluForm form> static LogicalResult biasGelu(Node &node) {
  if (failed(node.expectInputs(1, 2)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  if (node.has(1)) {
    SmallVector<Value> both = {x, node.input(1)};
    if (failed(node.broadcast(both)))
      return failure();
    x = b.binary<nn::AddOp>(both[0], both[1]);
  }
  return node.result(b.make<nn::GeluOp>(x.getType(), x, form));
}

// x · sigmoid(alpha · x)
static Value quickGelu(Node &node, Value x) {
  Value scaled = node.b.binary<nn::MulOp>(x, node.getFloat("alpha", 1.702f));
  return node.b.binary<nn::MulOp>(x, node.b.unary<nn::SigmoidOp>(scaled));
}

void frontend::registerMicrosoft(HandlerTable &table) {
  table.add("com.microsoft.Gelu", 1, biasGelu<nn::GeluForm::erf>);
  table.add("com.microsoft.BiasGelu", 1, biasGelu<nn::GeluForm::erf>);
  table.add("com.microsoft.FastGelu", 1, biasGelu<nn::GeluForm::tanh>);
  table.add("com.microsoft.QuickGelu", 1, activation<quickGelu>);
}

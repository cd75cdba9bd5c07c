// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dropout. Its random numbers are keyed by the node's ordinal in the graph, so
// that the masks are a function of the model, the seed and the step, and a
// reference can reproduce them.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/Node.h"
#include "runtime/support/concat.h"

#include "frontends/onnx/GraphImporter.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// The ratio is an input since opset 12 and an attribute before. With ratio 0 or
// in evaluation the input passes through.
static LogicalResult dropout(Node &node) {
  if (failed(node.expectInputs(1, 3)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  double ratio = 0.5;
  if (node.has(1, "ratio")) {
    auto number = node.numberOrAttribute(1, "ratio");
    if (!number)
      return failure();
    ratio = *number;
  }
  if (!(ratio >= 0 && ratio < 1))
    return node.refuse(
        concat("the ratio ", ratio, " is not in the range [0, 1)"));
  // Only --dropout=graph reads it.
  std::optional<double> mode;
  if (node.has(2) && !(mode = node.number(2, "'training_mode'")))
    return failure();
  // nullopt if the options turn this dropout off.
  std::optional<int64_t> ordinal =
      node.importer.dropoutOrdinal(node, ratio, mode);
  Emitter &b = node.b;
  Value x = node.input(0);
  auto dropped = [&](Value value) -> Value {
    if (!ordinal)
      return value;
    return b.make<nn::DropoutOp>(value.getType(), value, node.importer.random(),
                                 b.builder.getF64FloatAttr(ratio),
                                 b.builder.getI64IntegerAttr(*ordinal));
  };
  node.setOutput(0, dropped(x));
  // The mask says which elements are kept: of ones the others become 0.
  if (node.isUsed(1)) {
    // The same ordinal gives the same random numbers, so the mask is that of
    // output 0.
    Value ones = dropped(b.like(x, 1));
    node.setOutput(1, b.compare(nn::Predicate::ne, ones, b.like(x, 0)));
  }
  return success();
}

void frontend::registerDropout(HandlerTable &table) {
  table.add("Dropout", 7, dropout);
}

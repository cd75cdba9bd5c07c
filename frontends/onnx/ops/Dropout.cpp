// Dropout. Its random numbers are keyed by the node's ordinal in the graph, so
// that the masks are a function of the model, the seed and the step, and a
// reference can reproduce them.
#include "frontends/onnx/Node.h"

#include "frontends/onnx/GraphImporter.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

static LogicalResult dropout(Node &node) {
  if (failed(node.expectInputs(1, 3)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  if (node.isUsed(1))
    return node.refuse("output 'mask' is not supported, but is used");
  double ratio = 0.5;
  if (node.has(1, "ratio")) {
    auto number = node.numberOrAttribute(1, "ratio");
    if (!number)
      return failure();
    ratio = *number;
  }
  if (!(ratio >= 0 && ratio < 1))
    return node.refuse("the ratio " + std::to_string(ratio) +
                       " is not in the range [0, 1)");
  // Only --dropout=graph reads it.
  std::optional<double> mode;
  if (node.has(2) && !(mode = node.number(2, "'training_mode'")))
    return failure();
  std::optional<int64_t> ordinal =
      node.importer.dropoutOrdinal(node, ratio, mode);
  if (!ordinal)
    return node.result(node.input(0));
  Value random = node.importer.random();
  return node.result(
      node.b.make<nn::DropoutOp>(node.input(0).getType(), node.input(0), random,
                                 node.b.builder.getF64FloatAttr(ratio),
                                 node.b.builder.getI64IntegerAttr(*ordinal)));
}

void frontend::registerDropout(HandlerTable &table) {
  table.add("Dropout", 7, dropout);
}

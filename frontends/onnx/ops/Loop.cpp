// Loop and Scan, unrolled: their numbers of iterations must be constant. Each
// iteration imports the body anew, so a value of a loop may change its shape,
// and each is spent on the importer's budgets.
#include "frontends/onnx/Node.h"

#include "frontends/onnx/GraphImporter.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Returns the attribute 'body', or null after it has refused the node.
static const onnx::GraphProto *bodyOf(Node &node) {
  const onnx::AttributeProto *body = node.attribute("body");
  // See If: such a body would escape the count of nodes before the import.
  bool isPassed = llvm::any_of(node.proto.attribute(), [](const auto &given) {
    return !given.ref_attr_name().empty();
  });
  if (!body || !body->has_g() || isPassed)
    return (void)node.refuse("attribute 'body' must be a graph of the model"),
           nullptr;
  return &body->g();
}

// Stacks one value per iteration along a new axis.
static Value stacked(Node &node, ArrayRef<Value> values, int64_t axis) {
  SmallVector<Value> parts;
  for (Value value : values) {
    if (value.getType() != values[0].getType())
      return (void)node.refuse("an output changes its shape or type between "
                               "iterations"),
             Value();
    Shape shape(shapeOf(value));
    shape.insert(shape.begin() + axis, 1);
    parts.push_back(node.b.reshape(value, shape));
  }
  Shape shape(shapeOf(parts[0]));
  shape[axis] = parts.size();
  return failed(node.checkShape(shape)) ? Value() : node.b.concat(parts, axis);
}

// The inputs that the loop carries, from `first` on; null after it has refused
// the node.
static bool readCarried(Node &node, int64_t first, int64_t end,
                        SmallVectorImpl<Value> &values) {
  for (int64_t i = first; i < end; ++i) {
    values.push_back(node.input(i));
    if (!values.back()) {
      (void)node.refuse("input " + Twine(i) + " must be a tensor");
      return false;
    }
  }
  return true;
}

// Inputs: the number of iterations, a condition, and the values that are
// carried. The condition must be constant after each iteration.
static LogicalResult loop(Node &node) {
  if (node.numInputs() < 2)
    return node.refuse("inputs 'M' and 'cond' are missing");
  const onnx::GraphProto *body = bodyOf(node);
  if (!body)
    return failure();
  Emitter &b = node.b;
  std::optional<int64_t> times;
  if (node.has(0) && !(times = node.wholeNumber(0, "'M'")))
    return failure();
  std::optional<double> condition = 1;
  if (node.has(1) && !(condition = node.number(1, "'cond'")))
    return failure();
  SmallVector<Value> carried;
  if (!readCarried(node, 2, node.numInputs(), carried))
    return failure();
  size_t count = carried.size();
  if (body->output_size() < int64_t(count) + 1)
    return node.refuse("the body must have an output for its condition and for "
                       "each value that is carried");
  SmallVector<SmallVector<Value>> scanned(body->output_size() - count - 1);
  InliningCost::Size size = node.importer.costOf(*body);
  for (int64_t i = 0; *condition != 0 && (!times || i < *times); ++i) {
    SmallVector<Value> inputs = {b.reshape(b.integers({i}), {}),
                                 b.scalar(b.builder.getI1Type(), 1)};
    inputs.append(carried);
    SmallVector<Value> outputs;
    if (failed(node.importer.inlineBody(node, *body, size, i, inputs, outputs)))
      return failure();
    condition = matchSplat(outputs[0]);
    if (!condition)
      return node.refuse("the condition after iteration " + Twine(i) +
                         " is not constant");
    carried.assign(outputs.begin() + 1, outputs.begin() + 1 + count);
    for (auto [list, value] :
         llvm::zip(scanned, ArrayRef(outputs).drop_front(count + 1)))
      list.push_back(value);
  }
  for (size_t i = 0; i < count; ++i)
    node.setOutput(i, carried[i]);
  for (auto [i, list] : llvm::enumerate(scanned)) {
    if (!node.isUsed(count + i))
      continue;
    if (list.empty())
      return node.refuse("an output of no iteration has no shape");
    Value all = stacked(node, list, 0);
    if (!all)
      return failure();
    node.setOutput(count + i, all);
  }
  return success();
}

// The entry of a list attribute for scan input or output `i`.
static int64_t entryOf(const std::optional<SmallVector<int64_t>> &list,
                       int64_t i) {
  return list && i < int64_t(list->size()) ? (*list)[i] : 0;
}

// Iterates over slices of some inputs, and stacks some outputs.
static LogicalResult scan(Node &node) {
  const onnx::GraphProto *body = bodyOf(node);
  if (!body)
    return failure();
  Emitter &b = node.b;
  int64_t scans = node.getInt("num_scan_inputs", 0);
  int64_t states = node.numInputs() - scans;
  if (scans < 1 || states < 0 || body->output_size() < states)
    return node.refuse("attribute 'num_scan_inputs' is " + Twine(scans) +
                       ", which does not fit the inputs and the body");
  SmallVector<Value> carried, sequences;
  if (!readCarried(node, 0, states, carried) ||
      !readCarried(node, states, node.numInputs(), sequences))
    return failure();
  auto inputAxes = node.getInts("scan_input_axes");
  auto inputTurns = node.getInts("scan_input_directions");
  auto outputAxes = node.getInts("scan_output_axes");
  auto outputTurns = node.getInts("scan_output_directions");
  std::optional<int64_t> times;
  SmallVector<int64_t> axes;
  for (auto [i, sequence] : llvm::enumerate(sequences)) {
    auto axis = node.axis(entryOf(inputAxes, i), rankOf(sequence));
    if (!axis)
      return failure();
    axes.push_back(*axis);
    int64_t length = shapeOf(sequence)[*axis];
    if (times && *times != length)
      return node.refuse("the scanned inputs have different lengths");
    times = length;
  }
  SmallVector<SmallVector<Value>> scanned(body->output_size() - states);
  InliningCost::Size size = node.importer.costOf(*body);
  for (int64_t i = 0; i < *times; ++i) {
    SmallVector<Value> inputs = carried, outputs;
    for (auto [k, sequence] : llvm::enumerate(sequences)) {
      int64_t at = entryOf(inputTurns, k) ? *times - 1 - i : i;
      Value part = b.slice(sequence, axes[k], at, 1);
      Shape shape(shapeOf(part));
      shape.erase(shape.begin() + axes[k]);
      inputs.push_back(b.reshape(part, shape));
    }
    if (failed(node.importer.inlineBody(node, *body, size, i, inputs, outputs)))
      return failure();
    carried.assign(outputs.begin(), outputs.begin() + states);
    for (auto [list, value] :
         llvm::zip(scanned, ArrayRef(outputs).drop_front(states)))
      list.push_back(value);
  }
  for (int64_t i = 0; i < states; ++i)
    node.setOutput(i, carried[i]);
  for (auto [i, list] : llvm::enumerate(scanned)) {
    if (!node.isUsed(states + i))
      continue;
    if (list.empty())
      return node.refuse("an output of no iteration has no shape");
    auto axis = node.axis(entryOf(outputAxes, i), rankOf(list[0]) + 1);
    if (!axis)
      return failure();
    if (entryOf(outputTurns, i))
      std::reverse(list.begin(), list.end());
    Value all = stacked(node, list, *axis);
    if (!all)
      return failure();
    node.setOutput(states + i, all);
  }
  return success();
}

void frontend::registerLoop(HandlerTable &table) {
  table.add("Loop", 1, loop);
  table.add("Scan", 9, scan);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop, Scan and SequenceMap, unrolled: their numbers of iterations must be
// constant. Each iteration imports the body anew, so a value of a loop may
// change its shape, a sequence its length, and each is spent on the importer's
// budgets.
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

// Stacks one value per iteration along a new axis. ONNX stacks along `axis`,
// counted in the result's dimensions.
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

// Reads the inputs that the loop carries, from `first` on. Returns false after
// it has refused the node. A carried value may be a tensor, a sequence or an
// optional.
static bool readCarried(Node &node, int64_t first, int64_t end,
                        SmallVectorImpl<Item> &items) {
  for (int64_t i = first; i < end; ++i) {
    std::optional<Item> item = node.item(i);
    if (!item || failed(node.expectPlain(i)))
      return false;
    items.push_back(*std::move(item));
  }
  return true;
}

// Collects the output of an iteration that the node stacks. Returns false after
// it has refused the node.
static bool collect(Node &node, SmallVectorImpl<Value> &list,
                    const Item &item) {
  list.push_back(item.value);
  if (!item.value)
    (void)node.refuse("an output that is stacked must be a tensor");
  return item.value != nullptr;
}

// Inputs: the number of iterations, a condition, and the values that are
// carried. The condition must be constant after each iteration. Either bound
// may be missing; a condition that never becomes false runs into the budgets.
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
  SmallVector<Item> carried;
  if (!readCarried(node, 2, node.numInputs(), carried))
    return failure();
  size_t count = carried.size();
  if (body->output_size() < int64_t(count) + 1)
    return node.refuse("the body must have an output for its condition and for "
                       "each value that is carried");
  SmallVector<SmallVector<Value>> scanned(body->output_size() - count - 1);
  // Counted once; each iteration spends as much.
  InliningCost::Size size = node.importer.costOf(*body);
  for (int64_t i = 0; *condition != 0 && (!times || i < *times); ++i) {
    SmallVector<Item> inputs = {
        Item::tensor(b.reshape(b.integers({i}), {})),
        Item::tensor(b.scalar(b.builder.getI1Type(), 1))};
    inputs.append(carried);
    SmallVector<Item> outputs;
    if (failed(node.importer.inlineBody(node, *body, size, i, inputs, outputs)))
      return failure();
    condition = outputs[0].value ? matchSplat(outputs[0].value) : std::nullopt;
    if (!condition)
      return node.refuse("the condition after iteration " + Twine(i) +
                         " is not constant");
    carried.assign(outputs.begin() + 1, outputs.begin() + 1 + count);
    for (auto [list, item] :
         llvm::zip(scanned, ArrayRef(outputs).drop_front(count + 1)))
      if (!collect(node, list, item))
        return failure();
  }
  for (size_t i = 0; i < count; ++i)
    node.setItem(i, carried[i]);
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

// Iterates over slices of some inputs, and stacks some outputs. The last
// `num_scan_inputs` inputs are sequences; those before are carried. The axes
// and directions are lists per sequence, 0 where absent.
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
  SmallVector<Item> carried, scannedInputs;
  if (!readCarried(node, 0, states, carried) ||
      !readCarried(node, states, node.numInputs(), scannedInputs))
    return failure();
  SmallVector<Value> sequences;
  for (const Item &item : scannedInputs)
    sequences.push_back(item.value);
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
    SmallVector<Item> inputs = carried, outputs;
    for (auto [k, sequence] : llvm::enumerate(sequences)) {
      // Direction 1 runs from the end.
      int64_t at = entryOf(inputTurns, k) ? *times - 1 - i : i;
      Value part = b.slice(sequence, axes[k], at, 1);
      Shape shape(shapeOf(part));
      shape.erase(shape.begin() + axes[k]);
      inputs.push_back(Item::tensor(b.reshape(part, shape)));
    }
    if (failed(node.importer.inlineBody(node, *body, size, i, inputs, outputs)))
      return failure();
    carried.assign(outputs.begin(), outputs.begin() + states);
    for (auto [list, item] :
         llvm::zip(scanned, ArrayRef(outputs).drop_front(states)))
      if (!collect(node, list, item))
        return failure();
  }
  for (int64_t i = 0; i < states; ++i)
    node.setItem(i, carried[i]);
  for (auto [i, list] : llvm::enumerate(scanned)) {
    if (!node.isUsed(states + i))
      continue;
    if (list.empty())
      return node.refuse("an output of no iteration has no shape");
    auto axis = node.axis(entryOf(outputAxes, i), rankOf(list[0]) + 1);
    if (!axis)
      return failure();
    // Outputs are stacked in reverse instead of written from the end.
    if (entryOf(outputTurns, i))
      std::reverse(list.begin(), list.end());
    Value all = stacked(node, list, *axis);
    if (!all)
      return failure();
    node.setOutput(states + i, all);
  }
  return success();
}

// Calls the body once per tensor of the first sequence. The other inputs are
// sequences of the same length, or tensors that each call gets. Each output is
// a sequence with one tensor per call.
static LogicalResult sequenceMap(Node &node) {
  const onnx::GraphProto *body = bodyOf(node);
  SmallVector<Item> given;
  if (!body || !readCarried(node, 0, node.numInputs(), given))
    return failure();
  if (given.empty() || !given[0].isSequence)
    return node.refuse("the first input must be a sequence");
  size_t length = given[0].sequence.size();
  for (const Item &item : given)
    if (item.isSequence && item.sequence.size() != length)
      return node.refuse("the sequences have different lengths");
  SmallVector<SmallVector<Value>> results(body->output_size());
  InliningCost::Size size = node.importer.costOf(*body);
  for (size_t i = 0; i < length; ++i) {
    SmallVector<Item> inputs, outputs;
    for (const Item &item : given)
      inputs.push_back(item.isSequence ? Item::tensor(item.sequence[i]) : item);
    if (failed(node.importer.inlineBody(node, *body, size, i, inputs, outputs)))
      return failure();
    for (auto [list, item] : llvm::zip(results, outputs))
      if (!collect(node, list, item))
        return failure();
  }
  for (auto [i, list] : llvm::enumerate(results))
    node.setItem(i, Item::list(list));
  return success();
}

void frontend::registerLoop(HandlerTable &table) {
  table.add("Loop", 1, loop);
  table.add("Scan", 9, scan);
  table.add("SequenceMap", 17, sequenceMap);
}

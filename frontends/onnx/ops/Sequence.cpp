// Sequences of tensors. They exist only during the import, as lists of values:
// their lengths are constant in a static graph, so each op on them is resolved
// here and none reaches nn.
#include "frontends/onnx/Node.h"

#include "frontends/onnx/GraphImporter.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// A scalar `split` gives equal parts, a vector their sizes; without one, each
// element along the axis becomes a tensor.
static LogicalResult splitToSequence(Node &node) {
  if (failed(node.expectInputs(1, 2)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  auto axis = node.axis(node.getInt("axis", 0), rankOf(x));
  if (!axis)
    return failure();
  int64_t size = shapeOf(x)[*axis];
  bool keep = node.has(1) || node.getInt("keepdims", 1);
  SmallVector<int64_t> sizes;
  if (node.has(1)) {
    auto given = node.integers(1, "'split'");
    if (!given)
      return failure();
    sizes = *given;
    // Equal parts, of which the last may be smaller.
    if (rankOf(node.input(1)) == 0) {
      int64_t each = sizes[0];
      if (each < 1 || size / each > 65536)
        return node.refuse(
            "'split' is " + Twine(each) +
            "; it must be positive and give at most 65536 parts");
      sizes.assign(size / each, each);
      if (size % each != 0)
        sizes.push_back(size % each);
    }
  } else {
    // Capped: a longer axis fails the check of the total below.
    sizes.assign(std::min<int64_t>(size, 65536), 1);
  }
  int64_t total = 0;
  // Saturates at size + 1, so that hostile sizes cannot wrap around to `size`.
  for (int64_t part : sizes)
    total =
        part < 0 || part > size ? size + 1 : std::min(total + part, size + 1);
  if (total != size)
    return node.refuse("the sizes in 'split' do not add up to dimension " +
                       Twine(*axis) + " of size " + Twine(size));
  SmallVector<Value> parts;
  int64_t begin = 0;
  for (int64_t part : sizes) {
    Value slice = b.slice(x, *axis, begin, part);
    if (!keep) {
      Shape shape(shapeOf(slice));
      shape.erase(shape.begin() + *axis);
      slice = b.reshape(slice, shape);
    }
    parts.push_back(slice);
    begin += part;
  }
  node.setSequence(0, parts);
  return success();
}

static LogicalResult sequenceConstruct(Node &node) {
  if (failed(node.expectInputs(node.numInputs(), 65536)))
    return failure();
  SmallVector<Value> values;
  for (int64_t i = 0; i < node.numInputs(); ++i)
    values.push_back(node.input(i));
  node.setSequence(0, values);
  return success();
}

// The position must be constant; negative ones count from the end.
static LogicalResult sequenceAt(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  ArrayRef<Value> values = node.importer.lookupSequence(node.proto.input(0));
  auto place = node.wholeNumber(1, "'position'");
  if (!place)
    return failure();
  int64_t size = values.size(), at = *place < 0 ? *place + size : *place;
  if (at < 0 || at >= size)
    return node.refuse("position " + Twine(*place) +
                       " is out of range for a sequence of length " +
                       Twine(size));
  return node.result(values[at]);
}

static LogicalResult sequenceLength(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  int64_t size = node.importer.lookupSequence(node.proto.input(0)).size();
  return node.result(node.b.reshape(node.b.integers({size}), {}));
}

// With `new_axis`, the tensors are stacked.
static LogicalResult concatFromSequence(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Emitter &b = node.b;
  SmallVector<Value> values(node.importer.lookupSequence(node.proto.input(0)));
  if (values.empty())
    return node.refuse("the sequence is empty");
  bool stack = node.getInt("new_axis", 0);
  auto axis = node.axis(node.getInt("axis", 0), rankOf(values[0]) + stack);
  if (!axis)
    return failure();
  Shape first(shapeOf(values[0]));
  for (Value &value : values) {
    Shape shape(shapeOf(value));
    bool fits = shape.size() == first.size() &&
                elementOf(value) == elementOf(values[0]);
    for (size_t d = 0; fits && d < shape.size(); ++d)
      fits = shape[d] == first[d] || (!stack && int64_t(d) == *axis);
    if (!fits)
      return node.refuse(
          "the tensors of the sequence differ in shape or element type");
    if (stack)
      shape.insert(shape.begin() + *axis, 1);
    value = b.reshape(value, shape);
  }
  return node.result(b.concat(values, *axis));
}

void frontend::registerSequence(HandlerTable &table) {
  table.add("SplitToSequence", 11, splitToSequence);
  table.add("SequenceConstruct", 11, sequenceConstruct);
  table.add("SequenceAt", 11, sequenceAt);
  table.add("SequenceLength", 11, sequenceLength);
  table.add("ConcatFromSequence", 11, concatFromSequence);
}

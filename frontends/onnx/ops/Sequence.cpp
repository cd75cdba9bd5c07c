// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sequences of tensors, and optionals. They exist only during the import: the
// length of a sequence is constant in a static graph, and so is whether an
// optional has an element, so each op on them is resolved here.
#include "frontends/onnx/Node.h"

#include "frontends/onnx/GraphImporter.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// A scalar `split` gives equal parts, a vector their sizes; without one, each
// element along the axis becomes a tensor. With `split`, 'keepdims' has no
// meaning, as ONNX says.
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
  node.setItem(0, Item::list(parts));
  return success();
}

// Elements may differ in shape: nothing is stacked until ConcatFromSequence.
static LogicalResult sequenceConstruct(Node &node) {
  if (failed(node.expectInputs(node.numInputs(), 65536)))
    return failure();
  SmallVector<Value> values;
  for (int64_t i = 0; i < node.numInputs(); ++i) {
    if (failed(node.expectPlain(i)))
      return failure();
    values.push_back(node.input(i));
  }
  node.setItem(0, Item::list(values));
  return success();
}

static LogicalResult sequenceEmpty(Node &node) {
  node.setItem(0, Item::list({}));
  return success();
}

// Reads the constant position in input `i`, which may count from the end, up to
// `most`; `absent` without the input. Returns nullopt after it has refused the
// node. `most` is the size for an insertion and the size less 1 for a read.
static std::optional<int64_t> readPosition(Node &node, int64_t i, int64_t size,
                                           int64_t most, int64_t absent) {
  if (!node.has(i))
    return absent;
  auto place = node.wholeNumber(i, "'position'");
  if (!place)
    return std::nullopt;
  int64_t at = *place < 0 ? *place + size : *place;
  if (at >= 0 && at <= most)
    return at;
  (void)node.refuse("position " + Twine(*place) +
                    " is out of range for a sequence of length " + Twine(size));
  return std::nullopt;
}

// Reads input 0. Returns nullopt after it has refused the node.
static std::optional<SmallVector<Value>> readSequence(Node &node) {
  std::optional<Item> item = node.item(0);
  if (item && !item->isSequence)
    (void)node.refuse("input 0 must be a sequence");
  if (!item || !item->isSequence)
    return std::nullopt;
  return item->sequence;
}

// Inserts at the end if the node names no position.
static LogicalResult sequenceInsert(Node &node) {
  if (failed(node.expectInputs(2, 3)) || failed(node.expectPlain(1)))
    return failure();
  auto values = readSequence(node);
  if (!values)
    return failure();
  int64_t size = values->size();
  auto at = readPosition(node, 2, size, size, size);
  if (!at)
    return failure();
  if (!node.input(1))
    return node.refuse("input 1 must be a tensor");
  values->insert(values->begin() + *at, node.input(1));
  node.setItem(0, Item::list(*values));
  return success();
}

// Erases the last element if the node names no position.
static LogicalResult sequenceErase(Node &node) {
  if (failed(node.expectInputs(1, 2)))
    return failure();
  auto values = readSequence(node);
  if (!values)
    return failure();
  int64_t size = values->size();
  if (size == 0)
    return node.refuse("the sequence is empty");
  auto at = readPosition(node, 1, size, size - 1, size - 1);
  if (!at)
    return failure();
  values->erase(values->begin() + *at);
  node.setItem(0, Item::list(*values));
  return success();
}

// The position must be constant; negative ones count from the end.
static LogicalResult sequenceAt(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  ArrayRef<Value> values = node.importer.lookupSequence(node.proto.input(0));
  auto at = readPosition(node, 1, values.size(), int64_t(values.size()) - 1, 0);
  return at ? node.result(values[*at]) : failure();
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

// ---- optionals ----

// An optional is its element; without an input it is absent. A tensor in an
// optional is passed on as the tensor itself, so no op needs to know of
// optionals.
static LogicalResult optional(Node &node) {
  if (failed(node.expectInputs(0, 1)))
    return failure();
  std::optional<Item> item = node.has(0) ? node.item(0) : Item::absent();
  if (!item)
    return failure();
  if (item->value)
    return node.result(item->value, node.elementType(0));
  node.setItem(0, *std::move(item));
  return success();
}

static LogicalResult optionalHasElement(Node &node) {
  if (failed(node.expectInputs(0, 1)))
    return failure();
  std::optional<Item> item = node.has(0) ? node.item(0) : Item::absent();
  if (!item)
    return failure();
  return node.result(
      node.b.scalar(node.b.builder.getI1Type(), !item->isAbsent));
}

static LogicalResult optionalGetElement(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  std::optional<Item> item = node.item(0);
  if (!item)
    return failure();
  if (item->isAbsent)
    return node.refuse("the optional has no element");
  return optional(node);
}

void frontend::registerSequence(HandlerTable &table) {
  table.add("SplitToSequence", 11, splitToSequence);
  table.add("SequenceConstruct", 11, sequenceConstruct);
  table.add("SequenceEmpty", 11, sequenceEmpty);
  table.add("SequenceInsert", 11, sequenceInsert);
  table.add("SequenceErase", 11, sequenceErase);
  table.add("SequenceAt", 11, sequenceAt);
  table.add("SequenceLength", 11, sequenceLength);
  table.add("ConcatFromSequence", 11, concatFromSequence);
  table.add("Optional", 15, optional);
  table.add("OptionalHasElement", 15, optionalHasElement);
  table.add("OptionalGetElement", 15, optionalGetElement);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Access to the inputs and attributes of an ONNX node, the checks that handlers
// share, and the table of handlers. Checks refuse the node themselves, so that
// a handler reads as a list of conditions followed by ops.
#include "frontends/onnx/Node.h"

#include "frontends/onnx/GraphImporter.h"
#include "runtime/support/concat.h"

#include <cmath>
#include <cstdio>
#include <utility>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// A load is built at each call for a parameter, so handlers call it once per
// use.
Value Node::input(int64_t i) {
  return has(i) ? importer.lookup(proto.input(i)) : Value();
}

std::optional<Item> Node::item(int64_t i) {
  std::optional<Item> found;
  if (!has(i))
    (void)refuse("input " + Twine(i) + " is missing");
  else if (!(found = importer.lookupItem(proto.input(i))))
    (void)refuse("the sequences up to this node need " +
                 Budgets::exceeded(Cost::ops));
  return found;
}

// Handlers need shapes, axes and the like as constants. They are constants only
// if earlier nodes have folded.
std::optional<SmallVector<int64_t>> Node::integers(int64_t i, StringRef what) {
  Value value = input(i);
  std::optional<SmallVector<int64_t>> result;
  if (value)
    result = integersOf(value);
  // If folding has stopped, that is the likelier cause, although the value may
  // depend on an input all the same.
  if (!result && b.unfolded)
    (void)refuse(what + " must be constant integers, but folding stopped at " +
                 Budgets::exceeded(*b.unfolded));
  else if (!result)
    (void)refuse(
        what +
        " must be constant integers, but depends on an input or a parameter");
  return result;
}

std::optional<double> Node::number(int64_t i, StringRef what) {
  Value value = input(i);
  std::optional<double> result;
  if (value && tensorType(value).getNumElements() == 1)
    result = matchSplat(value);
  if (!result)
    (void)refuse(what + " must be a constant scalar");
  return result;
}

// NaN fails both comparisons, so it is refused as well.
std::optional<int64_t> Node::wholeNumber(int64_t i, StringRef what) {
  constexpr double largest = 9007199254740992.0; // 2^53
  std::optional<double> value = number(i, what);
  if (!value)
    return std::nullopt;
  if (std::abs(*value) <= largest && *value == std::trunc(*value))
    return static_cast<int64_t>(*value);
  char text[32];
  std::snprintf(text, sizeof text, "%g", *value);
  (void)refuse(what + " must be a whole number, not " + text);
  return std::nullopt;
}

std::optional<SmallVector<int64_t>>
Node::integersOrAttribute(int64_t i, StringRef attributeName) {
  if (!has(i) && attribute(attributeName))
    return getInts(attributeName);
  return integers(i, ("'" + attributeName + "'").str());
}

// The input wins where a node has both.
std::optional<double> Node::numberOrAttribute(int64_t i,
                                              StringRef attributeName) {
  if (!has(i) && attribute(attributeName))
    return getFloat(attributeName, 0);
  return number(i, ("'" + attributeName + "'").str());
}

// Attributes have no order in a node, and there are few.
const onnx::AttributeProto *Node::attribute(StringRef name) const {
  for (const onnx::AttributeProto &attribute : proto.attribute())
    if (attribute.name() == name)
      return importer.resolve(attribute);
  return nullptr;
}

// An attribute of another kind counts as absent, here and below.
int64_t Node::getInt(StringRef name, int64_t absent) const {
  const auto *found = attribute(name);
  return found && found->has_i() ? found->i() : absent;
}

double Node::getFloat(StringRef name, double absent) const {
  const auto *found = attribute(name);
  return found && found->has_f() ? double(found->f()) : absent;
}

std::string Node::getString(StringRef name, StringRef absent) const {
  const auto *found = attribute(name);
  return found && found->has_s() ? found->s() : absent.str();
}

// nullopt and an empty list differ: some ops give them different meanings.
std::optional<SmallVector<int64_t>> Node::getInts(StringRef name) const {
  const auto *found = attribute(name);
  if (!found)
    return std::nullopt;
  return SmallVector<int64_t>(found->ints().begin(), found->ints().end());
}

int64_t Node::elementType(int64_t i) {
  return has(i) ? importer.elementType(proto.input(i)) : 0;
}

void Node::setOutput(int64_t i, Value value, int64_t elementType) {
  if (isUsed(i))
    importer.define(proto.output(i), value, elementType);
}

void Node::setItem(int64_t i, Item item) {
  if (isUsed(i))
    importer.define(proto.output(i), std::move(item));
}

LogicalResult Node::refuse(const Twine &reason) {
  if (!std::exchange(isRefused, true))
    importer.refuse(*this, reason);
  return failure();
}

// Inputs beyond `most` are those of opsets or variants that the handler does
// not know; ignoring them would change the node's meaning.
LogicalResult Node::expectInputs(int64_t required, int64_t most) {
  if (numInputs() > most)
    return refuse("the node has " + Twine(numInputs()) + " inputs; at most " +
                  Twine(most) + " are supported");
  for (int64_t i = 0; i < required; ++i)
    if (!has(i))
      return refuse("input " + Twine(i) + " is missing");
  return success();
}

// ONNX counts negative axes from the end.
std::optional<int64_t> Node::axis(int64_t value, int64_t rank) {
  if (value < -rank || value >= rank) {
    (void)refuse("axis " + Twine(value) + " is out of range for rank " +
                 Twine(rank));
    return std::nullopt;
  }
  if (rank > kHighestRank) {
    (void)refuse("the rank " + Twine(rank) + " exceeds " + Twine(kHighestRank));
    return std::nullopt;
  }
  return value < 0 ? value + rank : value;
}

std::optional<Shape> Node::axes(ArrayRef<int64_t> values, int64_t rank) {
  Shape result;
  for (int64_t value : values) {
    std::optional<int64_t> one = axis(value, rank);
    if (!one)
      return std::nullopt;
    if (llvm::is_contained(result, *one)) {
      (void)refuse("axis " + Twine(value) + " is given twice");
      return std::nullopt;
    }
    result.push_back(*one);
  }
  llvm::sort(result);
  return result;
}

LogicalResult Node::checkShape(ArrayRef<int64_t> shape) {
  if (!countElements(shape))
    return refuse("the result has a negative dimension, too many elements, or "
                  "more than " +
                  Twine(kHighestRank) + " dimensions");
  return success();
}

LogicalResult Node::expectFloat(Value value) {
  if (!isa<FloatType>(elementOf(value)))
    return refuse("the input must have a floating-point type");
  return success();
}

LogicalResult Node::expectPlain(int64_t i) {
  if (int64_t type = elementType(i); type && !isPlainType(type))
    return refuse("input '" + proto.input(i) + "' has element type " +
                  nameOf(type) + ", which loops and sequences do not carry");
  return success();
}

std::string frontend::printShape(ArrayRef<int64_t> shape) {
  std::string text = "[";
  for (int64_t size : shape)
    text += concat(text.size() > 1 ? ", " : "", size);
  return text + "]";
}

// NumPy's rule over all values at once. Starts from a scalar's shape, to which
// everything broadcasts.
LogicalResult Node::broadcast(MutableArrayRef<Value> values) {
  Shape shape;
  for (Value value : values) {
    std::optional<Shape> next = broadcastShapes(shape, shapeOf(value));
    if (!next)
      return refuse("shapes " + printShape(shape) + " and " +
                    printShape(shapeOf(value)) + " do not broadcast");
    shape = *next;
  }
  for (Value &value : values)
    value = b.broadcast(value, shape);
  return success();
}

// The common shape must be the wanted one: otherwise the value would extend it.
bool Node::broadcastsTo(Value value, ArrayRef<int64_t> shape) {
  std::optional<Shape> both = broadcastShapes(shapeOf(value), shape);
  return both && ArrayRef<int64_t>(*both) == shape;
}

// Registers explicitly: static initialisers of a library may be dropped by the
// linker.
HandlerTable::HandlerTable() {
  registerActivation(*this);
  registerAttention(*this);
  registerBits(*this);
  registerClassical(*this);
  registerConstants(*this);
  registerControl(*this);
  registerConvolution(*this);
  registerDeterminant(*this);
  registerDropout(*this);
  registerEinsum(*this);
  registerElementwise(*this);
  registerFlexAttention(*this);
  registerFourier(*this);
  registerGather(*this);
  registerGradient(*this);
  registerIntegerProduct(*this);
  registerLinearAttention(*this);
  registerLoop(*this);
  registerLoss(*this);
  registerMicrosoft(*this);
  registerNGrams(*this);
  registerNormalisation(*this);
  registerOptimizers(*this);
  registerPooling(*this);
  registerProduct(*this);
  registerQuantization(*this);
  registerRandom(*this);
  registerRearrange(*this);
  registerRecurrent(*this);
  registerReduction(*this);
  registerRegions(*this);
  registerResize(*this);
  registerSampling(*this);
  registerScatter(*this);
  registerSequence(*this);
  registerShape(*this);
  registerSort(*this);
}

// An opset has the newest version of an op up to its own.
Handler HandlerTable::find(StringRef op, int64_t version) const {
  auto versions = table.find(op.str());
  if (versions == table.end())
    return nullptr;
  auto above = versions->second.upper_bound(version);
  return above == versions->second.begin() ? nullptr : std::prev(above)->second;
}

CodeUse HandlerTable::useOf(StringRef op) const {
  auto found = uses.find(op.str());
  return found == uses.end() ? CodeUse::computes : found->second;
}

std::optional<int64_t> HandlerTable::oldest(StringRef op) const {
  auto versions = table.find(op.str());
  if (versions == table.end())
    return std::nullopt;
  return versions->second.begin()->first;
}

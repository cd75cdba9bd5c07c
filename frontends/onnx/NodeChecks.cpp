// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks nodes before and after their handlers, and says what is wrong with one
// so that a user finds it in PyTorch's code. Handlers rely on it: their inputs
// are defined, and of a kind and an element type that the op takes.
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/GraphImporter.h"
#include "runtime/support/concat.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Records a refusal with what a user needs to find the node in PyTorch's code:
// its name, op type, opset version and module.
void GraphImporter::refuse(Node &node, const Twine &reason) {
  std::string text = "'" + node.name + "' (" + node.proto.op_type() + ", ";
  if (!node.proto.domain().empty() && node.proto.domain() != "ai.onnx")
    text += "domain '" + node.proto.domain() + "', ";
  text += concat("opset ", node.version, ")");
  if (b.modules && b.modules.getPaths().size() > 1) {
    StringAttr module = b.modules.getPaths().drop_back().back();
    text += " in module '" + module.str() + "'";
  }
  refusals.addNode(b.loc,
                   text + ": " + reason.str() + describeInputs(node.proto));
}

// Returns the types of the node's inputs, as the end of a refusal.
std::string GraphImporter::describeInputs(const onnx::NodeProto &proto) {
  constexpr int most = 6;
  std::string text;
  llvm::raw_string_ostream stream(text);
  for (int i = 0; i < std::min(proto.input_size(), most); ++i) {
    Entry *entry = proto.input(i).empty() ? nullptr : find(proto.input(i));
    stream << (i ? ", " : "; inputs: ");
    if (proto.input(i).empty())
      stream << "none";
    else if (entry && entry->isSequence)
      stream << "a sequence";
    else if (entry && (entry->loaded || entry->value))
      stream << (entry->loaded ? Type(entry->loaded->type)
                               : entry->value.getType());
    else
      stream << "unknown";
  }
  return text + (proto.input_size() > most ? ", …" : "");
}

// Returns true if the node was folded, up to a broadcast.
static bool isConstant(Value value) {
  if (auto broadcast = value.getDefiningOp<nn::BroadcastOp>())
    value = broadcast.getInput();
  return value.getDefiningOp<nn::ConstantOp>() != nullptr;
}

// Returns true for ops that accept sequences and optionals as inputs.
static bool takesSequences(StringRef op) {
  return llvm::is_contained(
      {"SequenceAt", "SequenceLength", "ConcatFromSequence", "SequenceInsert",
       "SequenceErase", "SequenceMap", "Identity", "Loop", "Optional",
       "OptionalGetElement", "OptionalHasElement"},
      op);
}

// Returns true for ops that accept storage types (isStorageType): ONNX lets no
// other op compute with them.
static bool takesStorageTypes(StringRef op) {
  return llvm::is_contained({"Cast", "CastLike", "BitCast", "QuantizeLinear",
                             "DequantizeLinear", "Identity", "Reshape",
                             "Flatten", "Squeeze", "Unsqueeze", "Transpose",
                             "Shape", "Size", "If", "Loop", "Scan"},
                            op);
}

// Says that there is no handler, and what would help.
std::string GraphImporter::unsupported(const Node &node) const {
  if (!node.proto.domain().empty() && node.proto.domain() != "ai.onnx")
    return "unsupported op; ops of other domains must be functions of the "
           "model";
  if (std::optional<int64_t> oldest = handlers.oldest(node.proto.op_type()))
    return concat("unsupported op in this opset; export with opset ", *oldest,
                  " or newer");
  return "unsupported op; write it with others that are supported, or add it "
         "(docs/add-an-onnx-op.md)";
}

// Refuses a node whose inputs are undefined, of a kind that it does not take,
// or poisoned, whose cause is reported already.
LogicalResult GraphImporter::checkInputs(Node &node, bool isFunction) {
  const onnx::NodeProto &proto = node.proto;
  auto refused = [&](const Twine &reason) {
    refuse(node, reason);
    return failure();
  };
  for (const std::string &input : proto.input()) {
    if (input.empty())
      continue;
    Entry *entry = find(input);
    if (!entry)
      return refused("input '" + input + "' is not defined before this node");
    if (entry->isPoisoned)
      return failure();
    bool isTensor = !entry->isSequence && !entry->isAbsent;
    if (!isTensor && !isFunction && !takesSequences(proto.op_type()))
      return refused("input '" + input + "' is " +
                     (entry->isSequence ? "a sequence" : "an empty optional") +
                     "; a tensor is expected");
    if (isTensor && !lookup(input))
      return refused("input '" + input +
                     "' cannot be read: " + tensors.problem);
    if (int64_t type = elementTypeOf(*entry);
        isStorageType(type) && !isFunction &&
        !takesStorageTypes(proto.op_type()))
      return refused("input '" + input + "' has element type " + nameOf(type) +
                     "; dequantise or cast it first");
  }
  return success();
}

// Gives the outputs that a handler has set their ONNX types, unless the nodes
// of a function or a nested graph have done so, and counts the node for the
// summary.
LogicalResult GraphImporter::checkOutputs(Node &node, bool isFunction) {
  const onnx::NodeProto &proto = node.proto;
  auto refused = [&](const Twine &reason) {
    refuse(node, reason);
    return failure();
  };
  bool isNested =
      isFunction || llvm::any_of(proto.attribute(), [](const auto &attribute) {
        return attribute.has_g();
      });
  // A node counts as folded if all of its outputs are constants.
  bool isFolded = true;
  for (const std::string &output : proto.output()) {
    if (output.empty())
      continue;
    auto entry = frame->values.find(output);
    if (entry == frame->values.end())
      return refused("output '" + output + "' is not supported");
    Value value = entry->second.value;
    if (value && !entry->second.elementType && !isNested)
      entry->second.elementType = derivedType(proto, value);
    if (value && !countElements(shapeOf(value)))
      return refused("the result has too many elements or dimensions");
    isFolded &= value && isConstant(value);
  }
  if (!isFunction) {
    ++summary.nodes;
    summary.folded += isFolded;
  }
  return success();
}

// Charges constants of integers, which handlers read element by element.
std::optional<Cost> GraphImporter::exceededBy(const onnx::NodeProto &proto) {
  if (b.hasTooManyOps)
    return Cost::ops;
  for (const std::string &input : proto.input()) {
    Value value = input.empty() ? Value() : find(input)->value;
    if (value && elementOf(value).isIntOrIndex() && isConstant(value) &&
        !summary.budgets.spend(
            Cost::indices,
            std::min(tensorType(value).getNumElements(), kMostIntegers)))
      return Cost::indices;
  }
  return std::nullopt;
}

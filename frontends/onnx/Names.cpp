// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The names of a graph: what each one stands for in the frame of its graph, and
// the loads of parameters, buffers and constants. A name is an item, which is a
// value or a sequence of values, or a symbol that each use loads anew.
#include "frontends/onnx/GraphImporter.h"
#include "frontends/onnx/Unpacked.h"

#include "compiler/dialects/fsdp/SymbolNames.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Looks a name up in the current frame and the frames around it.
GraphImporter::Entry *GraphImporter::find(StringRef name) {
  for (Frame *at = frame; at; at = at->parent)
    if (auto found = at->values.find(name); found != at->values.end())
      return &found->second;
  return nullptr;
}

// Parameters and buffers are loaded anew at each use, so that form-units can
// give each load the unit of its reader. Constants are built at their first
// use.
Value GraphImporter::lookup(StringRef name) {
  Entry *entry = find(name);
  if (!entry)
    return nullptr;
  if (!entry->loaded)
    return entry->value;
  const NamedTensor &tensor = *entry->loaded;
  if (tensor.role != TensorRole::constant) {
    Value loaded = b.op<fsdp::LoadOp>(
        tensor.symbolType,
        FlatSymbolRefAttr::get(b.builder.getContext(),
                               fsdp::symbolOfTensor(tensor.fqn)));
    return tensor.symbolType == tensor.type
               ? loaded
               : unpacked(b, loaded, tensor.type, entry->elementType);
  }
  // A constant role implies an initializer: inputs are added to the table only
  // as parameters or buffers.
  FailureOr<DenseElementsAttr> value =
      tensors.constant(model.proto.graph().initializer(tensor.initializer));
  if (succeeded(value)) {
    entry->value = b.constant(*value);
    entry->loaded = nullptr;
  }
  return entry->value;
}

// Empty for an unknown name too; importNode has refused those.
ArrayRef<Value> GraphImporter::lookupSequence(StringRef name) {
  Entry *entry = find(name);
  return entry ? ArrayRef<Value>(entry->sequence) : ArrayRef<Value>();
}

// A name that is defined again, as in another iteration of a loop, loses its
// old meaning.
void GraphImporter::define(StringRef name, Value value, int64_t elementType) {
  Entry &entry = frame->values[name];
  entry = Entry();
  entry.value = value;
  entry.elementType = elementType;
}

Type GraphImporter::carrierOf(const Entry &entry) {
  if (entry.loaded)
    return entry.loaded->type.getElementType();
  return entry.value ? elementOf(entry.value) : Type();
}

// Returns the ONNX type that a handler has set, else the one that the value's
// own type suggests.
int64_t GraphImporter::elementTypeOf(const Entry &entry) {
  if (entry.elementType)
    return entry.elementType;
  Type carrier = carrierOf(entry);
  return carrier ? naturalType(carrier) : 0;
}

int64_t GraphImporter::elementType(StringRef name) {
  Entry *entry = find(name);
  return entry ? elementTypeOf(*entry) : 0;
}

int64_t GraphImporter::derivedType(const onnx::NodeProto &proto, Value output) {
  for (const std::string &input : proto.input())
    if (Entry *entry = input.empty() ? nullptr : find(input);
        entry && carrierOf(*entry) == elementOf(output))
      return entry->elementType;
  return 0;
}

std::optional<Item> GraphImporter::lookupItem(StringRef name) {
  Entry *entry = find(name);
  if (!entry ||
      !summary.budgets.spend(Cost::ops, int64_t(entry->sequence.size())))
    return std::nullopt;
  if (entry->loaded)
    return Item::tensor(lookup(name));
  return *entry;
}

void GraphImporter::define(StringRef name, Item item) {
  Entry &entry = frame->values[name];
  entry = Entry();
  static_cast<Item &>(entry) = std::move(item);
}

// In the body of a function, an attribute may refer to one of the calling node.
const onnx::AttributeProto *
GraphImporter::resolve(const onnx::AttributeProto &attribute) const {
  if (attribute.ref_attr_name().empty())
    return &attribute;
  auto found = frame->attributes.find(attribute.ref_attr_name());
  return found == frame->attributes.end() ? nullptr : found->second;
}

// Imports a graph node by node. Handlers see values; this file keeps the names,
// scopes, loads of parameters and refusals. A refused node poisons its outputs,
// and nodes that read poisoned values are skipped silently, so that one run
// reports every unsupported node of a model once.
#include "frontends/onnx/GraphImporter.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// "ai.onnx" and "" are the same domain, written in two ways.
GraphImporter::GraphImporter(const ModelFile &model, Weights &weights,
                             ParameterTable &parameters,
                             const fsdp::CompileOptions &options,
                             const TorchExport &torch, Refusals &refusals,
                             MLIRContext *context, ImportSummary &summary)
    : model(model), tensors(weights), parameters(parameters), options(options),
      torch(torch), refusals(refusals), summary(summary),
      b(context, summary.budgets) {
  for (const auto &import : model.proto.opset_import())
    root.opsets[import.domain() == "ai.onnx" ? "" : import.domain()] =
        import.version();
  for (const auto &function : model.proto.functions())
    functions[{function.domain(), function.name()}] = &function;
}

// ---- names ----

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
  if (tensor.role != TensorRole::constant)
    return b.op<fsdp::LoadOp>(
        tensor.type,
        FlatSymbolRefAttr::get(b.builder.getContext(), tensor.fqn));
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

// Marks the outputs of a refused node, so that its readers are skipped
// silently.
void GraphImporter::poison(const onnx::NodeProto &proto) {
  for (const std::string &output : proto.output()) {
    Entry &entry = frame->values[output];
    entry = Entry();
    entry.isPoisoned = true;
  }
}

// Records a refusal with what a user needs to find the node in PyTorch's code:
// its name, op type, opset version and module.
void GraphImporter::refuse(Node &node, const Twine &reason) {
  std::string text = "'" + node.name + "' (" + node.proto.op_type() + ", ";
  if (!node.proto.domain().empty() && node.proto.domain() != "ai.onnx")
    text += "domain '" + node.proto.domain() + "', ";
  text += "opset " + std::to_string(node.version) + ")";
  if (b.scope && b.scope.size() > 1) {
    StringRef module = cast<StringAttr>(b.scope[b.scope.size() - 2]).getValue();
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

// ---- nodes ----

// Sets the location and the module scope of the ops that the node will build.
void GraphImporter::enterScope(const onnx::NodeProto &proto,
                               const std::string &name) {
  b.loc = NameLoc::get(b.builder.getStringAttr(name));
  std::vector<std::string> scopes = parsePythonList(
      metadata(proto.metadata_props(), "pkg.torch.onnx.name_scopes"));
  std::vector<std::string> classes = parsePythonList(
      metadata(proto.metadata_props(), "pkg.torch.onnx.class_hierarchy"));
  if (scopes.empty() || scopes.size() != classes.size()) {
    if (!frame->isInlined) // functions and branches keep the caller's scope
      b.scope = b.classes = nullptr;
    return;
  }
  b.scope = b.builder.getStrArrayAttr(llvm::to_vector_of<StringRef>(scopes));
  b.classes = b.builder.getStrArrayAttr(llvm::to_vector_of<StringRef>(classes));
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
    return "unsupported op in this opset; export with opset " +
           std::to_string(*oldest) + " or newer";
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

// Imports one node. The outputs of a node that is refused are poisoned.
void GraphImporter::importNode(const onnx::NodeProto &proto) {
  std::string name = proto.name();
  if (name.empty() && proto.output_size() > 0)
    name = proto.output(0);
  name = frame->prefix + name;
  // Nodes of a function without scopes of their own have those of the call, and
  // the next node has its own again.
  auto outerScope = b.scope, outerClasses = b.classes;
  Location outerLoc = b.loc;
  llvm::scope_exit leave([&] {
    b.scope = outerScope;
    b.classes = outerClasses;
    b.loc = outerLoc;
  });
  enterScope(proto, name);

  std::string domain = proto.domain() == "ai.onnx" ? "" : proto.domain();
  auto opset = frame->opsets.find(domain);
  Node node(*this, b, proto, name,
            opset == frame->opsets.end() ? 0 : opset->second);
  if (failed(importNode(node, domain)))
    poison(proto);
}

// Finds the node's function or handler and calls it. The order of the checks is
// that of their messages: the first thing that is wrong is the one to report.
LogicalResult GraphImporter::importNode(Node &node, StringRef domain) {
  const onnx::NodeProto &proto = node.proto;
  auto refused = [&](const Twine &reason) {
    refuse(node, reason);
    return failure();
  };
  // A function of the model takes precedence over a handler of the same name.
  auto function = functions.find({proto.domain(), proto.op_type()});
  bool isFunction = function != functions.end();
  Handler handler = handlers.find(
      domain.empty() ? proto.op_type() : (domain + "." + proto.op_type()).str(),
      node.version);
  if (!isFunction && !handler)
    return refused(unsupported(node));
  if (failed(checkInputs(node, isFunction)))
    return failure();
  if (std::string lost = lostInExport(proto); !lost.empty())
    return refused(lost);
  if (std::optional<Cost> cost = exceededBy(proto))
    return refused("the nodes up to this one need " + Budgets::exceeded(*cost) +
                   "; export a smaller or simpler graph");
  // A handler that fails must have refused. If one has not, this names the node
  // all the same.
  size_t before = refusals.size();
  if (failed(isFunction ? inlineFunction(node, *function->second)
                        : handler(node)))
    return refusals.size() == before ? refused("the node is malformed")
                                     : failure();
  if (isDetach(tracedCall(proto)))
    stopGradients(proto);
  return checkOutputs(node, isFunction);
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

// Nodes are in topological order by ONNX's rules.
void GraphImporter::importNodes(
    const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes) {
  for (const onnx::NodeProto &node : nodes) {
    // After the op budget every further node would be refused for it, too.
    if (refusals.size() >= kMostRefusals ||
        (b.hasTooManyOps && !refusals.empty()))
      return;
    importNode(node);
  }
}

// ---- the whole graph ----

// Emits an error for tensors that nodes read but nothing defines: the model was
// saved without its weights.
LogicalResult GraphImporter::checkDefined() {
  const onnx::GraphProto &graph = model.proto.graph();
  llvm::StringSet<> defined;
  for (const auto &input : graph.input())
    defined.insert(input.name());
  for (const auto &tensor : graph.initializer())
    defined.insert(tensor.name());
  for (const auto &node : graph.node())
    for (const std::string &output : node.output())
      defined.insert(output);
  SmallVector<StringRef> missing;
  for (const auto &node : graph.node())
    for (const std::string &input : node.input())
      if (!input.empty() && defined.insert(input).second)
        missing.push_back(input);
  if (missing.empty())
    return success();
  InFlightDiagnostic error = emitError(b.builder.getUnknownLoc());
  error << "'" << model.path << "' does not define " << missing.size()
        << " tensors that its nodes use (";
  for (auto [i, name] : llvm::enumerate(ArrayRef(missing).take_front(3)))
    error << (i ? ", '" : "'") << name << "'";
  error << (missing.size() > 3 ? ", …" : "")
        << "); to export without weights, save with "
           "include_initializers=False, keep_initializers_as_inputs=True";
  refusals.attachTo(error);
  return error;
}

// Defines inputs, then initializers: a name that is both has the initializer's
// value.
LogicalResult GraphImporter::run(func::FuncOp function,
                                 ArrayRef<std::string> inputs) {
  if (failed(checkDefined()))
    return failure();
  // Comes before any node is imported: nested functions can ask for 2^40 nodes.
  std::string reason =
      InliningCost(functions).spend(model.proto.graph(), summary.budgets);
  if (!reason.empty()) {
    InFlightDiagnostic error = emitError(b.builder.getUnknownLoc());
    error << "'" << model.path << "' has " << reason
          << "; export with fewer functions, or inline them with onnx.inliner";
    refusals.attachTo(error);
    return error;
  }
  Block *body = function.addEntryBlock();
  b.builder.setInsertionPointToEnd(body);
  for (auto [name, argument] : llvm::zip(inputs, body->getArguments()))
    define(name, argument);
  for (const auto &input : model.proto.graph().input()) {
    Entry &entry = root.values[input.name()];
    if (const NamedTensor *tensor = parameters.find(input.name()))
      entry.loaded = tensor;
    entry.elementType = input.type().tensor_type().elem_type();
  }
  for (const auto &tensor : model.proto.graph().initializer()) {
    Entry &entry = root.values[tensor.name()];
    entry.loaded = parameters.find(tensor.name());
    entry.elementType = tensor.data_type();
  }
  for (const auto &name : refusals.tensorNames())
    root.values[name.getKey()].isPoisoned = true;
  importNodes(model.proto.graph().node());
  b.scope = b.classes = nullptr;
  b.loc = b.builder.getUnknownLoc();
  return refusals.report();
}

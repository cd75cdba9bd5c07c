// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the parameters and buffers of a model. torch's metadata says what each
// tensor is; in models of other exporters, every float initializer that is not
// a scalar counts as a parameter. Names are those of the model's state_dict, so
// that weights saved by a program load back into torch.
#include "frontends/onnx/Parameters.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "frontends/onnx/Emitter.h"
#include "frontends/onnx/Node.h"
#include "frontends/onnx/StoredConstants.h"
#include "frontends/onnx/TorchExport.h"
#include "runtime/support/concat.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// ---- options ----

// Tries all names without a short cut: each pattern must learn that it matched,
// or checkUsed refuses it.
static bool matches(fsdp::NamePatterns &patterns, const NamedTensor &tensor) {
  bool any = patterns.match(tensor.fqn);
  for (const std::string &alias : tensor.aliases)
    any |= patterns.match(alias);
  return any;
}

// --frozen takes precedence over --trainable, and --trainable over what the
// module says. Both patterns are asked in any case, so that each learns of its
// match.
bool ParameterTable::isTrainable(const NamedTensor &tensor) {
  bool kept = matches(trainable, tensor) ||
              (trainable.empty() && !tensor.isDeclaredFrozen);
  bool dropped = matches(frozen, tensor);
  return kept && !dropped;
}

bool ParameterTable::mayTrain(StringRef name) {
  const NamedTensor *tensor = find(name);
  return tensor && tensor->role == TensorRole::parameter &&
         isTrainable(*tensor);
}

LogicalResult ParameterTable::compilePatterns() {
  Location loc = UnknownLoc::get(context);
  for (auto [flag, texts, patterns] :
       {std::tuple("frozen", &options.frozen.texts, &frozen),
        std::tuple("trainable", &options.trainable.texts, &trainable)}) {
    auto compiled = fsdp::NamePatterns::compile(loc, flag, *texts);
    if (failed(compiled))
      return failure();
    *patterns = std::move(*compiled);
  }
  return success();
}

// ---- roles ----

// The first fault counts; the message says what to do before the export.
std::string frontend::tensorFault(int64_t onnxType, ArrayRef<int64_t> shape,
                                  MLIRContext *context) {
  if (!importedType(onnxType, context)) {
    bool isKnown = onnx::TensorProto_DataType_IsValid(int(onnxType));
    return "has the element type " +
           (isKnown ? onnx::TensorProto_DataType_Name(
                          onnx::TensorProto_DataType(onnxType))
                    : std::to_string(onnxType)) +
           ", which is not supported; cast it to a float or integer type "
           "before the export";
  }
  for (auto [i, size] : llvm::enumerate(shape))
    if (size == kDynamicSize)
      return concat("has a dynamic dimension ", i,
                    "; a parameter needs a static shape");
  if (int64_t(shape.size()) > kHighestRank)
    return concat("has ", shape.size(), " dimensions, more than ",
                  kHighestRank);
  if (!countElements(shape))
    return "has the shape " + printShape(shape) +
           ", which has a negative dimension or too many elements";
  return "";
}

// Also adds constants, so that a name that is defined twice is found. A tensor
// that is refused is left out of the table without failing: nodes that do not
// read it are still checked, and one run reports everything.
LogicalResult ParameterTable::add(StringRef name, TensorRole role,
                                  int64_t onnxType, ArrayRef<int64_t> shape,
                                  int initializer) {
  Type element = importedType(onnxType, context);
  if (std::string fault = tensorFault(onnxType, shape, context);
      !fault.empty()) {
    refusals.addTensor("tensor", name, fault);
    return success();
  }
  std::string fqn = name.str();
  auto type = RankedTensorType::get(shape, element);
  RankedTensorType symbolType = type;
  if (role == TensorRole::stored && isStorageType(onnxType))
    symbolType = RankedTensorType::get(
        (type.getNumElements() * bitsOf(onnxType) + 7) / 8,
        IntegerType::get(context, 8, IntegerType::Unsigned));
  auto [place, fresh] = byName.try_emplace(name, tensors.size());
  if (!fresh)
    return emitError(UnknownLoc::get(context))
           << "tensor '" << name << "' of '" << model.path
           << "' is defined more than once";
  tensors.push_back(
      {name.str(),
       fqn,
       role,
       type,
       symbolType,
       initializer,
       {},
       declaredFrozen.contains(name) ||
           (training.updatesParameters() && !training.trains(name))});
  return success();
}

// The statistics that BatchNormalization updates are buffers. Other buffers
// never change, so they are constants.
static llvm::StringSet<> batchNormStatistics(const onnx::GraphProto &graph) {
  llvm::StringSet<> statistics;
  for (const auto &node : graph.node())
    if (node.op_type() == "BatchNormalization" && node.input_size() == 5)
      for (int i : {3, 4})
        statistics.insert(node.input(i));
  return statistics;
}

// A node that differentiates with respect to a tensor keeps it from being a
// constant, which would be folded.
static llvm::StringSet<> differentiatedTensors(const onnx::GraphProto &graph) {
  llvm::StringSet<> tensors;
  for (const auto &node : graph.node())
    if (node.op_type() == "Gradient")
      for (const auto &attribute : node.attribute())
        if (attribute.name() == "xs")
          tensors.insert(attribute.strings().begin(),
                         attribute.strings().end());
  return tensors;
}

llvm::StringMap<std::string> ParameterTable::readKinds() {
  const onnx::GraphProto &graph = model.proto.graph();
  signature = parseSignature(
      metadata(graph.metadata_props(),
               "pkg.torch.export.ExportedProgram.graph_signature"));
  llvm::StringMap<std::string> kinds;
  for (const auto *values : {&graph.value_info(), &graph.input()})
    for (const auto &value : *values) {
      if (StringRef kind = inputKind(value); !kind.empty())
        kinds[value.name()] = kind.str();
      if (isDeclaredFrozen(value))
        declaredFrozen.insert(value.name());
    }
  for (const SignatureEntry &entry : signature)
    if (!entry.target.empty()) {
      // Metadata of the value itself takes precedence over the signature.
      kinds.try_emplace(entry.target, entry.kind);
      if (entry.kind == "BUFFER")
        buffers.insert(entry.target);
    }
  return kinds;
}

// Roles come from three places, most reliable first: use as statistics of a
// BatchNormalization, torch's metadata, and (without any metadata) type and
// rank.
LogicalResult ParameterTable::build() {
  if (failed(compilePatterns()))
    return failure();
  const onnx::GraphProto &graph = model.proto.graph();
  llvm::StringMap<std::string> kinds = readKinds();
  llvm::StringSet<> statistics = batchNormStatistics(graph);
  llvm::StringSet<> differentiated = differentiatedTensors(graph);
  for (const Training::Trained &trained : training.trained)
    differentiated.insert(trained.parameter);

  // Without any metadata the model is not torch's, and a float initializer of
  // rank 1 or more is a parameter.
  auto role = [&](StringRef name, bool mayBeParameter) {
    if (statistics.contains(name))
      return TensorRole::buffer;
    if (training.trains(name))
      return TensorRole::parameter;
    if (training.constants.contains(name))
      return TensorRole::constant;
    auto kind = kinds.find(name);
    bool isParameter = kinds.empty()
                           ? mayBeParameter
                           : kind != kinds.end() && kind->second == "PARAMETER";
    return isParameter ? TensorRole::parameter : TensorRole::constant;
  };
  auto roleOf = [&](const onnx::TensorProto &tensor) {
    Type element = importedType(tensor.data_type(), context);
    ArrayRef<int64_t> shape(tensor.dims().data(), tensor.dims_size());
    bool isFloat = element && isa<FloatType>(element);
    // An empty tensor has nothing to train, and quantised values are constants,
    // also where a module has them as parameters without gradients.
    bool isEmpty = llvm::is_contained(shape, 0);
    bool mayBeParameter =
        isFloat && !isEmpty &&
        (!shape.empty() || differentiated.contains(tensor.name()));
    TensorRole kind = isStorageType(tensor.data_type())
                          ? TensorRole::constant
                          : role(tensor.name(), mayBeParameter);
    bool isConstant =
        kind == TensorRole::parameter && (isEmpty || (element && !isFloat));
    return isConstant ? TensorRole::constant : kind;
  };
  llvm::StringMap<TensorRole> roles;
  for (const onnx::TensorProto &tensor : graph.initializer())
    roles.try_emplace(tensor.name(), roleOf(tensor));
  llvm::StringSet<> stored =
      storedConstants(graph, HandlerTable(), [&](StringRef name) {
        return roles.lookup(name) != TensorRole::constant;
      });
  for (int i = 0; i < graph.initializer_size(); ++i) {
    const onnx::TensorProto &tensor = graph.initializer(i);
    ArrayRef<int64_t> shape(tensor.dims().data(), tensor.dims_size());
    TensorRole kind = stored.contains(tensor.name())
                          ? TensorRole::stored
                          : roles.lookup(tensor.name());
    if (failed(add(tensor.name(), kind, tensor.data_type(), shape, i)))
      return failure();
  }
  // Inputs that metadata calls parameters: the model was exported without
  // weights. All other inputs are data (readInputs).
  for (const onnx::ValueInfoProto &input : graph.input()) {
    TensorRole kind = role(input.name(), false);
    if (kind == TensorRole::constant || byName.count(input.name()))
      continue;
    const auto &type = input.type().tensor_type();
    Shape shape;
    // A symbolic dimension makes `add` refuse the tensor.
    for (const auto &dim : type.shape().dim())
      shape.push_back(dim.has_dim_value() ? dim.dim_value() : kDynamicSize);
    if (failed(add(input.name(), kind, type.elem_type(), shape, -1)))
      return failure();
  }
  findAliases();
  return success();
}

const NamedTensor *ParameterTable::find(StringRef name) const {
  auto found = byName.find(name);
  return found == byName.end() ? nullptr : &tensors[found->second];
}

const NamedTensor *ParameterTable::findBuffer(StringRef fqn) const {
  auto found = llvm::find_if(tensors, [&](const NamedTensor &tensor) {
    return tensor.role == TensorRole::buffer && tensor.fqn == fqn;
  });
  return found == tensors.end() ? nullptr : &*found;
}

// A tied weight keeps only one of its names in the graph. The lost name is that
// of the module that reads the weight: the reader's scope plus the last
// component of the weight's name.
void ParameterTable::findAliases() {
  llvm::StringSet<> missing;
  for (const SignatureEntry &entry : signature)
    if (entry.kind == "PARAMETER" && !byName.count(entry.target))
      missing.insert(entry.target);
  for (const auto &node : model.proto.graph().node()) {
    std::vector<std::string> scopes = parsePythonList(
        metadata(node.metadata_props(), "pkg.torch.onnx.name_scopes"));
    if (scopes.size() < 2)
      continue;
    for (const std::string &input : node.input()) {
      auto found = byName.find(input);
      if (found == byName.end() ||
          tensors[found->second].role != TensorRole::parameter)
        continue;
      // The last scope is the node's own; the one before is the module's.
      StringRef suffix = StringRef(input).substr(input.rfind('.') + 1);
      std::string name = scopes[scopes.size() - 2] + "." + suffix.str();
      if (missing.erase(name))
        tensors[found->second].aliases.push_back(name);
    }
  }
}

std::optional<std::string>
ParameterTable::counterOf(StringRef runningMean) const {
  if (!runningMean.consume_back("running_mean"))
    return std::nullopt;
  std::string name = runningMean.str() + "num_batches_tracked";
  return buffers.contains(name) ? std::optional(name) : std::nullopt;
}

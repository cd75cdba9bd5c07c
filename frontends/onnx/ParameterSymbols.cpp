// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The values of parameters and buffers, and the symbols that carry them. A
// value is in one of four places: a range of a file that the program reads, the
// module, a rule that fills it, or --init of the program.
#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "frontends/onnx/Node.h"
#include "frontends/onnx/Parameters.h"
#include "runtime/abi/init_rule.h"

#include "mlir/IR/Builders.h"
#include "llvm/Support/GlobPattern.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Users may write any name of a tied weight.
template <typename Match>
static bool anyName(const NamedTensor &tensor, Match matches) {
  return matches(tensor.fqn) || llvm::any_of(tensor.aliases, matches);
}

// Rules apply only to tensors without a value; emitTensor asks for no others.
std::optional<std::string>
ParameterTable::rule(const NamedTensor &tensor) const {
  for (const auto &[glob, rule] : options.initRules) {
    auto pattern = llvm::cantFail(llvm::GlobPattern::create(glob));
    if (anyName(tensor, [&](StringRef name) { return pattern.match(name); }))
      return rule;
  }
  return std::nullopt;
}

LogicalResult ParameterTable::setInitial(const InitialValues &values) {
  for (const NamedTensor &tensor : tensors) {
    bool isSet = values.rules.contains(tensor.name) ||
                 values.values.contains(tensor.name);
    if (isSet && (tensor.role == TensorRole::constant ||
                  tensor.role == TensorRole::stored))
      return emitError(UnknownLoc::get(context))
             << "the initialization of '" << model.path << "' sets '"
             << tensor.name << "', which is neither a parameter nor a state; "
             << "give it that value in its initializer";
    if (!isSet || rule(tensor))
      continue;
    auto refuse = [&](ArrayRef<int64_t> shape) {
      return emitError(UnknownLoc::get(context))
             << "the initialization of '" << tensor.name << "' of '"
             << model.path << "' has another type or shape, "
             << printShape(shape) << ", than the tensor, " << tensor.type;
    };
    if (auto random = values.rules.find(tensor.name);
        random != values.rules.end()) {
      if (ArrayRef(random->second.shape) != tensor.type.getShape())
        return refuse(random->second.shape);
      Result<InitRule> parsed = parseInitRule(random->second.rule);
      if (!parsed)
        return emitError(UnknownLoc::get(context))
               << "the initialization '" << random->second.rule << "' of '"
               << tensor.name << "' " << parsed.error().message;
      initial.rules[tensor.name] = random->second;
    }
    if (DenseElementsAttr value = values.values.lookup(tensor.name)) {
      if (value.getType() != tensor.type)
        return refuse(cast<RankedTensorType>(value.getType()).getShape());
      initial.values[tensor.name] = value;
    }
  }
  return success();
}

// The value is in one of four places: a range of a file that the program reads
// (source), the module (value), a rule that fills it, or --init of the program
// (none of them). The model's own initialization comes before its values.
LogicalResult ParameterTable::emitTensor(OpBuilder &builder,
                                         const NamedTensor &tensor,
                                         bool isTrainable) {
  fsdp::SourceAttr source;
  ElementsAttr value;
  StringAttr rule;
  auto unreadable = [&] {
    return emitError(UnknownLoc::get(context))
           << "tensor '" << tensor.name << "' of '" << model.path
           << "' cannot be read: " << weights.problem;
  };
  if (DenseElementsAttr found = initial.values.lookup(tensor.name)) {
    value = found;
  } else if (auto random = initial.rules.find(tensor.name);
             random != initial.rules.end()) {
    rule = builder.getStringAttr(random->second.rule);
  } else if (tensor.initializer >= 0) {
    bool embed = options.embedWeights;
    if (!embed) {
      FailureOr<fsdp::SourceAttr> place = weights.source(tensor.initializer);
      if (failed(place))
        return unreadable();
      source = *place;
      // Embeds the value if the program could not read it from the file itself.
      embed = !source;
    }
    if (embed) {
      const auto &proto = model.proto.graph().initializer(tensor.initializer);
      bool isPacked = tensor.symbolType != tensor.type;
      FailureOr<DenseElementsAttr> elements =
          isPacked ? weights.packed(proto) : weights.value(proto);
      if (failed(elements))
        return unreadable();
      value = *elements;
    }
  } else if (std::optional<std::string> found = this->rule(tensor)) {
    // The option has checked the rule's form, but not if it is one for this
    // shape.
    Result<InitRule> shaped =
        ruleForShape(*parseInitRule(*found), tensor.type.getShape().vec());
    if (!shaped)
      return emitError(UnknownLoc::get(context))
             << "--init-rule '" << *found << "' of parameter '" << tensor.fqn
             << "', " << tensor.type << ", " << shaped.error().message;
    rule = builder.getStringAttr(*found);
  }
  ArrayAttr aliases;
  if (!tensor.aliases.empty())
    aliases =
        builder.getStrArrayAttr(llvm::to_vector_of<StringRef>(tensor.aliases));
  Location loc = NameLoc::get(builder.getStringAttr(tensor.name));
  StringAttr name = builder.getStringAttr(fsdp::symbolOfTensor(tensor.fqn));
  TypeAttr type = TypeAttr::get(tensor.symbolType);
  if (tensor.role == TensorRole::buffer)
    fsdp::BufferOp::create(builder, loc, name, type, UnitAttr(), aliases,
                           source, rule, value, UnitAttr(), IntegerAttr());
  else
    fsdp::ParameterOp::create(
        builder, loc, name, type,
        isTrainable ? builder.getUnitAttr() : UnitAttr(),
        tensor.role == TensorRole::stored ? builder.getUnitAttr() : UnitAttr(),
        FlatSymbolRefAttr(), aliases, source, rule, value);
  return success();
}

// Returns true for the types that a layout can hold.
static bool isHeldByLayouts(const NamedTensor &tensor) {
  Type element = tensor.type.getElementType();
  return element.isF32() || element.isF16() || element.isBF16();
}

// Symbols are defined in the order of the graph.
LogicalResult ParameterTable::emit(OpBuilder &builder,
                                   const llvm::StringSet<> &used,
                                   ImportSummary &summary) {
  SmallVector<StringRef> names;
  for (const NamedTensor &tensor : tensors) {
    if (tensor.role == TensorRole::constant)
      continue;
    bool isUsed = used.contains(tensor.fqn);
    // As torch with grad=None: it is saved with the others, but has no
    // gradient, state or decay.
    bool isKept = isUsed || (tensor.role == TensorRole::parameter &&
                             isHeldByLayouts(tensor));
    // Nothing needs this constant, so the program does not store it.
    if (!isUsed && tensor.role == TensorRole::stored)
      continue;
    if (!isUsed)
      emitWarning(NameLoc::get(builder.getStringAttr(tensor.name)))
          << "'" << tensor.fqn << "' does not affect the loss; the program "
          << (isKept ? "keeps its value" : "omits it");
    if (!isKept)
      continue;
    bool trains =
        isUsed && tensor.role == TensorRole::parameter && isTrainable(tensor);
    if (failed(emitTensor(builder, tensor, trains)))
      return failure();
    if (tensor.role == TensorRole::buffer) {
      ++summary.buffers;
      continue;
    }
    if (tensor.role == TensorRole::stored) {
      summary.storedBytes += nn::tensorBytes(tensor.symbolType);
      continue;
    }
    names.push_back(tensor.fqn);
    ++summary.parameters;
    summary.aliases += tensor.aliases.size();
    summary.parameterElements += tensor.type.getNumElements();
    if (trains)
      summary.trainableElements += tensor.type.getNumElements();
  }
  Location loc = UnknownLoc::get(context);
  if (failed(frozen.checkUsed(loc, names, "parameter")))
    return failure();
  return trainable.checkUsed(loc, names, "parameter");
}

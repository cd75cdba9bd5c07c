// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hands over the gradients that a model computes itself, which --gradient names
// by pairs of tensor and parameter.
#include "frontends/onnx/GivenGradients.h"

#include "compiler/dialects/fsdp/SymbolNames.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Returns what the '*' of the pattern stands for in the name, or nullopt if the
// name does not match. Without '*' they must be equal.
static std::optional<StringRef> matchStar(StringRef pattern, StringRef name) {
  if (!pattern.contains('*'))
    return pattern == name ? std::optional(StringRef()) : std::nullopt;
  auto [before, after] = pattern.split('*');
  if (!name.consume_front(before) || !name.consume_back(after))
    return std::nullopt;
  return name;
}

static std::string fillStar(StringRef pattern, StringRef part) {
  auto [before, after] = pattern.split('*');
  return pattern.contains('*') ? (before + part + after).str() : pattern.str();
}

// The value becomes the gradient as it is: like one of the compiler's own it is
// of this microbatch, and the runtime averages over all of a step.
static LogicalResult handOver(GraphImporter &importer,
                              ParameterTable &parameters, StringRef output,
                              StringRef parameter, llvm::StringSet<> &done) {
  Emitter &b = importer.emitter();
  auto refuse = [&] {
    return emitError(b.loc) << "--gradient '" << output << "=" << parameter
                            << "' of '" << importer.path() << "' ";
  };
  Value value = importer.lookup(output);
  if (!value)
    return refuse() << "names no tensor '" << output << "'";
  const NamedTensor *tensor = parameters.find(parameter);
  if (!tensor || tensor->role != TensorRole::parameter)
    return refuse() << "names no parameter '" << parameter << "'";
  if (!done.insert(parameter).second)
    return refuse() << "is the second gradient of '" << parameter << "'";
  if (!isa<FloatType>(elementOf(value)) ||
      shapeOf(value) != tensor->type.getShape())
    return refuse() << "has a value of type " << value.getType()
                    << " for a parameter of type " << tensor->type;
  if (parameters.mayTrain(parameter))
    b.op<fsdp::GradientOp>(
        FlatSymbolRefAttr::get(b.builder.getContext(),
                               fsdp::symbolOfTensor(tensor->fqn)),
        b.cast(value, tensor->type.getElementType()));
  return success();
}

LogicalResult frontend::handOverGradients(const ModelFile &model,
                                          GraphImporter &importer,
                                          ParameterTable &parameters,
                                          const fsdp::CompileOptions &options) {
  llvm::StringSet<> done;
  for (const fsdp::GradientRule &rule : options.gradients) {
    bool isUsed = false;
    for (const auto &output : model.proto.graph().output()) {
      auto part = matchStar(rule.output, output.name());
      if (!part)
        continue;
      isUsed = true;
      if (failed(handOver(importer, parameters, output.name(),
                          fillStar(rule.parameter, *part), done)))
        return failure();
    }
    if (isUsed)
      continue;
    InFlightDiagnostic error = emitError(importer.emitter().loc);
    error << "--gradient '" << rule.output << "=" << rule.parameter
          << "' matches no output of '" << importer.path() << "'; outputs:";
    for (const auto &output : model.proto.graph().output())
      error << " '" << output.name() << "'";
    return error;
  }
  // Without any gradient the compiler would differentiate after all.
  if (!done.empty() && llvm::none_of(done.keys(), [&](StringRef name) {
        return parameters.mayTrain(name);
      }))
    return emitError(importer.emitter().loc)
           << "--gradient names only parameters of '" << importer.path()
           << "' that are frozen; omit it, or train one of them";
  return success();
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Evaluates the initialization graph of a model's own training. The program
// fills parameters with random numbers itself, so that every rank fills its
// part; the graph's generators become rules, with the program's --seed.
#include "frontends/onnx/ModelOptimizer.h"

#include "compiler/options/OptionTypes.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Returns the rule of a generator of random numbers, or nullopt for other
// nodes.
static std::optional<InitialValues::Random>
randomOf(const onnx::NodeProto &node) {
  bool isNormal = node.op_type() == "RandomNormal";
  if ((!isNormal && node.op_type() != "RandomUniform") ||
      !(node.domain().empty() || node.domain() == "ai.onnx") ||
      node.output_size() != 1)
    return std::nullopt;
  InitialValues::Random random;
  double first = 0, second = 1; // ONNX's defaults of both
  for (const auto &attribute : node.attribute()) {
    if (attribute.name() == (isNormal ? "mean" : "low"))
      first = attribute.f();
    if (attribute.name() == (isNormal ? "scale" : "high"))
      second = attribute.f();
    if (attribute.name() == "shape")
      random.shape.assign(attribute.ints().begin(), attribute.ints().end());
  }
  random.rule = (isNormal ? "normal(" : "uniform(") + fsdp::printNumber(first) +
                "," + fsdp::printNumber(second) + ")";
  return random;
}

FailureOr<InitialValues> frontend::readInitialization(const Training &training,
                                                      GraphImporter &importer) {
  InitialValues result;
  onnx::GraphProto graph;
  *graph.mutable_initializer() = training.initialization.initializer();
  llvm::StringMap<InitialValues::Random> random;
  for (const onnx::NodeProto &node : training.initialization.node()) {
    if (auto found = randomOf(node))
      random[node.output(0)] = *found;
    else
      *graph.add_node() = node;
  }
  std::vector<std::string> tensors, outputs;
  for (const auto &[tensor, output] : training.initial) {
    if (auto rule = random.find(output); rule != random.end()) {
      result.rules[tensor] = rule->second;
      continue;
    }
    tensors.push_back(tensor);
    outputs.push_back(output);
  }
  if (outputs.empty())
    return result;
  Block block;
  auto values = importer.importBeside(block, graph, {}, outputs);
  if (failed(values))
    return failure();
  for (auto [tensor, value] : llvm::zip_equal(tensors, *values)) {
    DenseElementsAttr constant = constantOf(value);
    if (!constant)
      return emitError(value.getLoc())
             << "the initialization of '" << tensor
             << "' is not constant; use constants, or RandomNormal or "
                "RandomUniform alone, or run with --init";
    result.values[tensor] = constant;
  }
  return result;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes the import of a model, to the end of phase `units`. A model is refused
// with one error, or it becomes a module that the verifiers accept.
//
// Most random bytes are not valid protobuf, so two of three mutations change
// the parsed model: its ops, their inputs and attributes, and the shapes of
// tensors.
#include "compiler/options/OptionTable.h"
#include "frontends/onnx/Import.h"
#include "onnx-ml.pb.h"
#include "passes/import/Passes.h"
#include "passes/units/Passes.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/packaged_llvm.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include <random>

using namespace mlir;
using namespace fsdpc;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz::MemoryFile file;
  // A context per input: the importer creates locations and types by the names
  // of the input, which would pile up.
  MLIRContext context(MLIRContext::Threading::DISABLED);
  int errors = 0;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    errors += diagnostic.getSeverity() == DiagnosticSeverity::Error;
    return success();
  });
  fsdp::CompileOptions options;
  // Values for the symbolic dimensions of the seeds.
  options.dims = {{"batch", 2}, {"N", 2}};
  auto module = frontend::importOnnx(file.write(data, size), options, &context);
  fuzz::demand(succeeded(module) == (errors == 0), "a refusal has an error");
  fuzz::demand(errors <= 1, "a refusal has one error");
  if (failed(module))
    return 0;
  (**module)->setAttr(fsdp::CompileOptions::kAttribute,
                      fsdp::writeOptions(options, &context));
  PassManager manager(&context);
  manager.addPass(passes::createFoldWeightTransposes());
  manager.addPass(passes::createRecogniseComposites());
  manager.addPass(passes::createVerifyInput());
  manager.addPass(passes::createFormUnits());
  manager.addPass(passes::createVerifyUnits());
  bool passed = succeeded(manager.run(**module));
  fuzz::demand(passed == (errors == 0), "a failed pass has an error");
  return 0;
}

namespace {

// The graph that is changed: the model's, or for every other seed that of its
// own training.
onnx::GraphProto &graphOf(onnx::ModelProto &model, unsigned seed) {
  if (model.training_info_size() > 0 && seed / 2 % 2)
    return *model.mutable_training_info(0)->mutable_algorithm();
  return *model.mutable_graph();
}

// Changes one thing in a model.
class Mutation {
public:
  // Collects the names of all values, which new edges may refer to, also
  // against the order of the nodes.
  Mutation(onnx::ModelProto &model, unsigned seed)
      : graph(graphOf(model, seed)), random(seed) {
    addNames(model.graph());
    if (&graph != &model.graph())
      addNames(graph);
  }

  void apply() {
    if (graph.node_size() == 0)
      return;
    int chosen = number(graph.node_size());
    onnx::NodeProto &node = *graph.mutable_node(chosen);
    switch (number(8)) {
    case 0:
      node.set_op_type(ops[number(std::size(ops))]);
      break;
    case 1:
      if (node.input_size() > 0 && !names.empty())
        node.set_input(number(node.input_size()), names[number(names.size())]);
      break;
    case 2:
      if (!names.empty())
        node.add_input(names[number(names.size())]);
      break;
    case 3:
      changeAttribute(node);
      break;
    case 4:
      changeInput();
      break;
    case 5:
      changeTensor();
      break;
    case 6:
      insert(chosen);
      break;
    case 7:
      if (node.input_size() > 0)
        node.mutable_input()->RemoveLast();
      break;
    }
  }

private:
  void addNames(const onnx::GraphProto &from) {
    for (const onnx::ValueInfoProto &input : from.input())
      names.push_back(input.name());
    for (const onnx::TensorProto &tensor : from.initializer())
      names.push_back(tensor.name());
    for (const onnx::NodeProto &node : from.node())
      names.insert(names.end(), node.output().begin(), node.output().end());
  }
  size_t number(size_t below) { return random() % below; }
  int64_t edge() { return edges[number(std::size(edges))]; }

  // Adds an attribute with values of several kinds, whatever the op expects, or
  // changes one value.
  void changeAttribute(onnx::NodeProto &node) {
    if (node.attribute_size() == 0 || number(4) == 0) {
      onnx::AttributeProto &added = *node.add_attribute();
      added.set_name(attributes[number(std::size(attributes))]);
      added.set_i(edge());
      added.set_f(float(edge()));
      for (size_t i = number(5); i > 0; --i)
        added.add_ints(edge());
      return;
    }
    onnx::AttributeProto &changed =
        *node.mutable_attribute(number(node.attribute_size()));
    if (changed.ints_size() > 0)
      changed.set_ints(number(changed.ints_size()), edge());
    else
      changed.set_i(edge());
  }
  void changeInput() {
    if (graph.input_size() == 0)
      return;
    auto &type = *graph.mutable_input(number(graph.input_size()))
                      ->mutable_type()
                      ->mutable_tensor_type();
    auto &shape = *type.mutable_shape();
    if (number(4) == 0)
      type.set_elem_type(number(17));
    else if (shape.dim_size() == 0 || number(3) == 0)
      shape.add_dim()->set_dim_value(edge());
    else
      shape.mutable_dim(number(shape.dim_size()))->set_dim_value(edge());
  }
  void changeTensor() {
    if (graph.initializer_size() == 0)
      return;
    onnx::TensorProto &tensor =
        *graph.mutable_initializer(number(graph.initializer_size()));
    if (tensor.int64_data_size() > 0)
      tensor.set_int64_data(number(tensor.int64_data_size()), edge());
    else if (tensor.dims_size() > 0)
      tensor.set_dims(number(tensor.dims_size()), edge());
    else
      tensor.set_data_type(number(17));
  }
  // A new node in front of one, which then reads its result.
  void insert(int at) {
    onnx::NodeProto added;
    added.set_op_type(ops[number(std::size(ops))]);
    added.add_output("made" + std::to_string(random() % 1000));
    for (size_t i = number(4); i > 0 && !names.empty(); --i)
      added.add_input(names[number(names.size())]);
    if (graph.node(at).input_size() > 0)
      graph.mutable_node(at)->set_input(0, added.output(0));
    // Nodes are in order, so the new one moves from the end to its place.
    *graph.add_node() = added;
    for (int i = graph.node_size() - 1; i > at; --i)
      graph.mutable_node()->SwapElements(i, i - 1);
  }

  // Small sizes and axes, and values where products or casts overflow.
  static constexpr int64_t edges[] = {
      0,       1,         2,         3,         4,         7,
      8,       16,        65536,     -1,        -2,        -3,
      1 << 20, 1LL << 31, 1LL << 32, 1LL << 40, INT64_MAX, INT64_MIN};
  static constexpr const char *attributes[] = {
      "axis",        "axes",         "perm",       "to",
      "keepdims",    "kernel_shape", "strides",    "pads",
      "dilations",   "group",        "num_heads",  "epsilon",
      "value",       "alpha",        "k",          "p",
      "batch_dims",  "ignore_index", "num_groups", "is_causal",
      "q_num_heads", "kv_num_heads", "value_int",  "value_ints",
      "ceil_mode",   "xs",           "y"};
  static constexpr const char *ops[] = {"Add",
                                        "Sub",
                                        "Mul",
                                        "Div",
                                        "Mod",
                                        "Pow",
                                        "Max",
                                        "Min",
                                        "Sum",
                                        "Mean",
                                        "And",
                                        "Not",
                                        "Equal",
                                        "Less",
                                        "Where",
                                        "Clip",
                                        "Neg",
                                        "Abs",
                                        "Exp",
                                        "Log",
                                        "Sqrt",
                                        "Relu",
                                        "Gelu",
                                        "Softplus",
                                        "Mish",
                                        "IsInf",
                                        "PRelu",
                                        "Elu",
                                        "MatMul",
                                        "Gemm",
                                        "Einsum",
                                        "Conv",
                                        "MaxPool",
                                        "AveragePool",
                                        "GlobalAveragePool",
                                        "BatchNormalization",
                                        "LayerNormalization",
                                        "GroupNormalization",
                                        "InstanceNormalization",
                                        "LpNormalization",
                                        "RMSNormalization",
                                        "Softmax",
                                        "LogSoftmax",
                                        "ReduceSum",
                                        "ReduceMax",
                                        "ReduceMean",
                                        "ReduceProd",
                                        "ReduceL2",
                                        "ReduceLogSumExp",
                                        "CumSum",
                                        "ArgMax",
                                        "Gather",
                                        "GatherND",
                                        "GatherElements",
                                        "OneHot",
                                        "Reshape",
                                        "Flatten",
                                        "Squeeze",
                                        "Unsqueeze",
                                        "Transpose",
                                        "Expand",
                                        "Tile",
                                        "Concat",
                                        "Split",
                                        "Slice",
                                        "Pad",
                                        "Trilu",
                                        "Shape",
                                        "Size",
                                        "Constant",
                                        "ConstantOfShape",
                                        "Range",
                                        "Cast",
                                        "CastLike",
                                        "EyeLike",
                                        "If",
                                        "Dropout",
                                        "SplitToSequence",
                                        "SequenceConstruct",
                                        "SequenceAt",
                                        "SequenceLength",
                                        "ConcatFromSequence",
                                        "SoftmaxCrossEntropyLoss",
                                        "NegativeLogLikelihoodLoss",
                                        "Attention",
                                        "RotaryEmbedding",
                                        "Gradient",
                                        "Adam",
                                        "Momentum"};

  onnx::GraphProto &graph;
  std::mt19937 random;
  std::vector<std::string> names;
};

} // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
                                          size_t most, unsigned seed) {
  onnx::ModelProto model;
  // A third of the mutations are of bytes, for the protobuf reader.
  if (seed % 3 == 0 || !model.ParseFromArray(data, int(size)) ||
      !model.has_graph())
    return LLVMFuzzerMutate(data, size, most);
  // Up to four changes at once.
  Mutation mutation(model, seed);
  for (unsigned i = 0; i <= seed / 3 % 4; ++i)
    mutation.apply();
  std::string bytes = model.SerializeAsString();
  if (bytes.size() > most)
    return LLVMFuzzerMutate(data, size, most);
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

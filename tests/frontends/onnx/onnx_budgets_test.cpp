// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small models that ask for much are imported or refused by the name of a
// budget, within 1 GiB and a few seconds of the processor. Each is imported in
// a process of its own, whose use of memory and time the kernel reports. At the
// end the largest use of each budget by the fixtures is printed.
#include "frontends/onnx/Import.h"
#include "onnx-ml.pb.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using testing::HasSubstr;

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool isSanitized = true;
#elif defined(__has_feature)
constexpr bool isSanitized = __has_feature(address_sanitizer);
#else
constexpr bool isSanitized = false;
#endif

// ---- models ----

using Strings = std::initializer_list<std::string>;

// A model with an input x of 4 floats and a parameter w of 4.
struct Model {
  onnx::ModelProto proto;
  onnx::GraphProto &graph = *proto.mutable_graph();

  Model() {
    proto.set_ir_version(10);
    addOpset(*proto.add_opset_import(), "", 20);
    addOpset(*proto.add_opset_import(), "own", 1);
    addInput("x", onnx::TensorProto::FLOAT, {4});
    onnx::TensorProto &w = *graph.add_initializer();
    w.set_name("w");
    w.set_data_type(onnx::TensorProto::FLOAT);
    w.add_dims(4);
    for (int i = 0; i < 4; ++i)
      w.add_float_data(float(i));
    graph.add_output()->set_name("loss");
  }
  static void addOpset(onnx::OperatorSetIdProto &import,
                       const std::string &domain, int64_t version) {
    import.set_domain(domain);
    import.set_version(version);
  }
  void addInput(const std::string &name, int type,
                std::initializer_list<int64_t> shape) {
    onnx::ValueInfoProto &input = *graph.add_input();
    input.set_name(name);
    auto &tensor = *input.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    for (int64_t size : shape)
      tensor.mutable_shape()->add_dim()->set_dim_value(size);
  }
  static onnx::NodeProto &fill(onnx::NodeProto &node, const std::string &op,
                               Strings inputs, Strings outputs) {
    node.set_op_type(op);
    for (const std::string &input : inputs)
      node.add_input(input);
    for (const std::string &output : outputs)
      node.add_output(output);
    node.set_name(op + "_" + node.output(0));
    return node;
  }
  onnx::NodeProto &node(const std::string &op, Strings inputs,
                        Strings outputs) {
    return fill(*graph.add_node(), op, inputs, outputs);
  }
  static onnx::AttributeProto &set(onnx::NodeProto &node,
                                   const std::string &name, int64_t value) {
    onnx::AttributeProto &attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(value);
    return attribute;
  }
  // A constant of 64-bit integers.
  void integers(const std::string &name, std::vector<int64_t> values,
                bool isScalar = false) {
    onnx::TensorProto &tensor = *graph.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::INT64);
    if (!isScalar)
      tensor.add_dims(int64_t(values.size()));
    for (int64_t value : values)
      tensor.add_int64_data(value);
  }
  // Floats 0, 1, …, count - 1 of a shape that begins with ones.
  void range(const std::string &name, int64_t count,
             const std::string &shape = "") {
    integers(name + "_from", {0}, true);
    integers(name + "_to", {count}, true);
    integers(name + "_by", {1}, true);
    node("Range", {name + "_from", name + "_to", name + "_by"},
         {name + "_ints"});
    std::string flat = shape.empty() ? name : name + "_flat";
    set(node("Cast", {name + "_ints"}, {flat}), "to", onnx::TensorProto::FLOAT);
    if (!shape.empty())
      node("Reshape", {flat, shape}, {name});
  }
  // The loss, which adds x · w to a tensor.
  void loss(const std::string &tensor) {
    node("Mul", {"x", "w"}, {"xw"});
    set(node("ReduceSum", {tensor}, {"total"}), "keepdims", 0);
    set(node("ReduceSum", {"xw"}, {"product"}), "keepdims", 0);
    node("Add", {"total", "product"}, {"loss"});
  }
  onnx::FunctionProto &function(const std::string &name) {
    onnx::FunctionProto &function = *proto.add_functions();
    function.set_name(name);
    function.set_domain("own");
    function.add_input("a");
    function.add_output("b");
    addOpset(*function.add_opset_import(), "", 20);
    addOpset(*function.add_opset_import(), "own", 1);
    return function;
  }
  // A function that calls `callee` so many times in a row.
  void caller(const std::string &name, const std::string &callee, int times) {
    onnx::FunctionProto &outer = function(name);
    for (int i = 0; i < times; ++i)
      fill(*outer.add_node(), callee, {i == 0 ? "a" : "t" + std::to_string(i)},
           {i + 1 == times ? "b" : "t" + std::to_string(i + 1)})
          .set_domain(callee == "Relu" ? "" : "own");
  }
  std::string bytes() const { return proto.SerializeAsString(); }
};

// ---- imports ----

struct Outcome {
  std::string error; // of the import
  double seconds = 0, mebibytes = 0;
};

std::string importHere(const std::string &file) {
  MLIRContext context;
  std::string error;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error) {
      error = diagnostic.str();
      if (auto notes = diagnostic.getNotes(); notes.begin() != notes.end())
        error += ": " + (*notes.begin()).str();
    }
    return success();
  });
  fsdp::CompileOptions options;
  auto module = importOnnx(file, options, &context);
  return succeeded(module) ? "" : error.empty() ? "no error" : error;
}

class OnnxBudgets : public testing::Test {
protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() /
             ("onnx_budgets_" + std::to_string(getpid()));
    std::filesystem::create_directory(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  // Imports in a child, and expects that it stays within the limits.
  std::string import(const std::string &bytes) {
    std::string model = folder / "model.onnx", told = folder / "error";
    std::ofstream(model, std::ios::binary) << bytes;
    pid_t child = fork();
    if (child == 0) {
      std::ofstream(told) << importHere(model) << std::flush;
      _exit(0);
    }
    int status = 0;
    rusage use = {};
    wait4(child, &status, 0, &use);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    double seconds = double(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                     double(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
    double mebibytes = double(use.ru_maxrss) / 1024;
    llvm::outs() << llvm::format("  file %.1f KiB, %.2f s, %.0f MiB\n",
                                 double(bytes.size()) / 1024, seconds,
                                 mebibytes);
    llvm::outs().flush();
    if (!isSanitized) {
      EXPECT_LT(seconds, 4); // 2 s in a release build
      EXPECT_LT(mebibytes, 1024);
    }
    std::ifstream file(told);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string import(Model &model) { return import(model.bytes()); }

  std::filesystem::path folder;
};

// 2^40 nodes in 2.6 KB.
TEST_F(OnnxBudgets, NestedFunctions) {
  Model model;
  model.caller("f0", "Relu", 1);
  for (int i = 1; i <= 40; ++i)
    model.caller("f" + std::to_string(i), "f" + std::to_string(i - 1), 2);
  model.node("f40", {"x"}, {"y"}).set_domain("own");
  model.loss("y");
  EXPECT_THAT(import(model), HasSubstr("budget 'nodes'"));
}

// Functions that call each other 20,000 deep need no stack for it.
TEST_F(OnnxBudgets, DeepFunctions) {
  Model model;
  model.caller("f0", "Relu", 1);
  for (int i = 1; i <= 20000; ++i)
    model.caller("f" + std::to_string(i), "f" + std::to_string(i - 1), 1);
  model.node("f20000", {"x"}, {"y"}).set_domain("own");
  model.loss("y");
  EXPECT_THAT(import(model), HasSubstr("budget 'depth'"));
}

// A function that calls itself would never end.
TEST_F(OnnxBudgets, RecursiveFunctions) {
  Model model;
  model.caller("f", "g", 2);
  model.caller("g", "f", 2);
  model.node("f", {"x"}, {"y"}).set_domain("own");
  model.loss("y");
  EXPECT_THAT(import(model), HasSubstr("budget 'depth'"));
}

// A name of 100 KB in front of the names of 10,000 nodes.
TEST_F(OnnxBudgets, LongNames) {
  Model model;
  model.caller("f", "Relu", 10000);
  onnx::NodeProto &call = model.node("f", {"x"}, {"y"});
  call.set_domain("own");
  call.set_name(std::string(100000, 'n'));
  model.loss("y");
  EXPECT_THAT(import(model), HasSubstr("budget 'inlined-bytes'"));
}

// 16 MB of empty nodes would take 2 GB.
TEST_F(OnnxBudgets, EmptyNodes) {
  Model model;
  model.loss("x");
  std::string nodes;
  for (int i = 0; i < 8 << 20; ++i)
    nodes += std::string("\x0a\x00", 2);
  onnx::ModelProto outer = model.proto;
  std::string graph = outer.graph().SerializeAsString() + nodes;
  outer.clear_graph();
  std::string bytes = outer.SerializeAsString() + '\x3a';
  for (size_t size = graph.size();; size >>= 7) {
    bytes += char((size & 127) | (size > 127 ? 128 : 0));
    if (size <= 127)
      break;
  }
  EXPECT_THAT(import(bytes + graph), HasSubstr("budget 'parsed-bytes'"));
}

// A splat of 2^40 elements takes no memory, but a sum over it would.
TEST_F(OnnxBudgets, SumOfSplat) {
  Model model;
  model.integers("shape", {1 << 20, 1 << 20});
  model.node("ConstantOfShape", {"shape"}, {"large"});
  model.loss("large");
  EXPECT_EQ(import(model), "");
}

// Too large to compute while the model is imported, 69 billion products: the
// ops stay in the program.
TEST_F(OnnxBudgets, ProductOfConstants) {
  Model model;
  model.integers("row", {1, 4096});
  model.integers("matrix", {4096, 4096});
  model.range("numbers", 4096, "row");
  model.node("Expand", {"numbers", "matrix"}, {"a"});
  model.node("Transpose", {"a"}, {"b"});
  model.node("MatMul", {"b", "a"}, {"c"});
  model.loss("c");
  EXPECT_EQ(import(model), "");
}

// The same of a convolution.
TEST_F(OnnxBudgets, ConvolutionOfConstants) {
  Model model;
  model.integers("image", {1, 1, 1024, 1024});
  model.integers("window", {1, 1, 512, 512});
  model.range("a", 1024 * 1024, "image");
  model.range("b", 512 * 512, "window");
  model.node("Conv", {"a", "b"}, {"c"});
  model.loss("c");
  EXPECT_EQ(import(model), "");
}

// Each slice reads the whole constant.
TEST_F(OnnxBudgets, SlicesOfConstant) {
  Model model;
  model.range("numbers", 1 << 22);
  std::string sum = "x";
  for (int i = 0; i < 2000; ++i) {
    std::string n = std::to_string(i);
    model.integers("from" + n, {i});
    model.integers("to" + n, {i + 4});
    model.node("Slice", {"numbers", "from" + n, "to" + n}, {"part" + n});
    model.node("Add", {sum, "part" + n}, {"sum" + n});
    sum = "sum" + n;
  }
  model.loss(sum);
  EXPECT_EQ(import(model), "");
}

// A new constant of 4 MB at each node.
TEST_F(OnnxBudgets, ManyConstants) {
  Model model;
  model.range("c0", 1 << 20);
  for (int i = 0; i < 2000; ++i)
    model.node("Add", {"c" + std::to_string(i), "c0"},
               {"c" + std::to_string(i + 1)});
  model.loss("c2000");
  EXPECT_EQ(import(model), "");
}

// A shape that would have been folded, had there not been all the others.
TEST_F(OnnxBudgets, ShapeThatIsNotFolded) {
  Model model;
  model.range("c0", 1 << 20);
  for (int i = 0; i < 200; ++i)
    model.node("Add", {"c" + std::to_string(i), "c0"},
               {"c" + std::to_string(i + 1)});
  model.node("ReduceMax", {"c200"}, {"one"});
  model.set(model.node("Cast", {"one"}, {"shape"}), "to",
            onnx::TensorProto::INT64);
  model.node("Reshape", {"x", "shape"}, {"y"});
  model.loss("y");
  EXPECT_THAT(import(model), HasSubstr("budget 'folded-"));
}

// 65,536 ops per node.
TEST_F(OnnxBudgets, Sequences) {
  Model model;
  model.addInput("long", onnx::TensorProto::FLOAT, {65536});
  for (int i = 0; i < 200; ++i) {
    std::string n = std::to_string(i);
    model.node("SplitToSequence", {"long"}, {"parts" + n});
    model.node("ConcatFromSequence", {"parts" + n}, {"whole" + n});
  }
  model.loss("whole199");
  EXPECT_THAT(import(model), HasSubstr("budget 'ops'"));
}

// 20,000 gathers, each of which reads 65,536 indices.
TEST_F(OnnxBudgets, IndicesReadOften) {
  Model model;
  model.addInput("table", onnx::TensorProto::FLOAT, {65536});
  std::vector<int64_t> places(65536);
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = int64_t(i * i % 65536);
  model.integers("places", places);
  std::string last = "table";
  for (int i = 0; i < 20000; ++i) {
    std::string next = "t" + std::to_string(i);
    model.node("Gather", {last, "places"}, {next});
    last = next;
  }
  model.loss(last);
  EXPECT_THAT(import(model), HasSubstr("budget 'indices'"));
}

// A rank that no model has.
TEST_F(OnnxBudgets, HighRank) {
  Model model;
  std::vector<int64_t> axes(60000);
  for (size_t i = 0; i < axes.size(); ++i)
    axes[i] = int64_t(i);
  model.integers("axes", axes);
  model.node("Unsqueeze", {"x", "axes"}, {"y"});
  model.loss("y");
  EXPECT_THAT(import(model), HasSubstr("exceeds 64"));
}

// Integers are followed from the input to the table that they select from.
TEST_F(OnnxBudgets, LongChainOfIntegers) {
  Model model;
  model.addInput("ids", onnx::TensorProto::INT64, {4, 1});
  std::string last = "ids";
  for (int i = 0; i < 50000; ++i) {
    std::string next = "t" + std::to_string(i);
    model.set(model.node("Cast", {last}, {next}), "to",
              i % 2 ? onnx::TensorProto::INT64 : onnx::TensorProto::INT32);
    last = next;
  }
  model.node("Gather", {"w", last}, {"y"});
  model.loss("y");
  EXPECT_EQ(import(model), "");
}

// Linear in the inputs.
TEST_F(OnnxBudgets, ManyInputs) {
  Model model;
  for (int i = 0; i < 50000; ++i)
    model.addInput("input" + std::to_string(i), onnx::TensorProto::FLOAT, {4});
  model.loss("input7");
  EXPECT_EQ(import(model), "");
}

// The list of refusals ends at a thousand.
TEST_F(OnnxBudgets, ManyRefusals) {
  Model model;
  for (int i = 0; i < 100000; ++i)
    model.node("Unheard", {"x"}, {"y" + std::to_string(i)});
  model.loss("x");
  EXPECT_THAT(import(model), HasSubstr("1000 or more nodes"));
}

// Prints how much of each budget the fixtures use at most.
TEST(OnnxBudgetsOfFixtures, AreFarFromTheLimits) {
  std::array<std::pair<int64_t, std::string>, kCosts> most = {};
  for (const auto &entry : std::filesystem::directory_iterator(FSDPC_MODELS)) {
    if (entry.path().extension() != ".onnx")
      continue;
    MLIRContext context;
    ScopedDiagnosticHandler quiet(&context,
                                  [](Diagnostic &) { return success(); });
    fsdp::CompileOptions options;
    if (entry.path().stem() == "gpt_dynamic")
      options.dims = {{"batch", 2}};
    if (entry.path().stem() == "gpt_lengths")
      options.dims = {{"length", 12}};
    ImportSummary summary;
    EXPECT_TRUE(succeeded(
        importOnnx(entry.path().string(), options, &context, &summary)));
    for (int i = 0; i < kCosts; ++i)
      most[i] = std::max(most[i], std::pair(summary.budgets.used(Cost(i)),
                                            entry.path().filename().string()));
  }
  for (int i = 0; i < kCosts; ++i) {
    const BudgetInfo &info = Budgets::info(Cost(i));
    llvm::outs() << llvm::format("  %-16s %12lld of %12lld  ", info.name.data(),
                                 (long long)most[i].first,
                                 (long long)info.limit)
                 << most[i].second << '\n';
    EXPECT_LT(most[i].first, info.limit / 8) << info.name.str();
  }
  llvm::outs().flush();
}

} // namespace

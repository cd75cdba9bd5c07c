// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Real exports are imported completely: every composite is recognised, and the
// loss that the reference interpreter computes equals PyTorch's. It checks the
// importer without kernels, devices or training.
#include "compiler/dialects/nn/reference/Reference.h"
#include "frontends/onnx/Import.h"
#include "passes/import/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/MemoryBuffer.h"

#include <gtest/gtest.h>

#include <fstream>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using namespace fsdpc::passes;

namespace {

std::string models() { return FSDPC_MODELS; }

// An input of the graph: a .npy file, or the bytes of the text from `shift` on.
struct Input {
  std::string name, file;
  int shift = -1;
};

struct Fixture {
  std::string name;
  std::vector<Input> inputs;
  double loss; // PyTorch's mean over the 12 microbatches of the first step
  std::map<std::string, int64_t> recognised;
  std::map<std::string, int64_t> dims;
};

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// All samples of an input as doubles, `elements` per sample.
struct Samples {
  std::vector<double> values;
  int64_t elements = 0;
};

template <typename T> void append(std::vector<double> &out, StringRef data) {
  for (size_t i = 0; i + sizeof(T) <= data.size(); i += sizeof(T)) {
    T value;
    memcpy(&value, data.data() + i, sizeof(T));
    out.push_back(double(value));
  }
}

Samples readSamples(const Input &input, ArrayRef<int64_t> shape) {
  Samples result;
  result.elements = 1;
  for (int64_t size : shape.drop_front())
    result.elements *= size;
  if (input.shift >= 0) {
    std::string text = readFile(models() + "/data/licence.txt");
    append<uint8_t>(result.values, StringRef(text).drop_front(input.shift));
    return result;
  }
  std::string bytes = readFile(models() + "/data/" + input.file);
  StringRef header = StringRef(bytes).substr(10, 118),
            data = StringRef(bytes).drop_front(128);
  for (auto [type, read] :
       {std::pair("<f4", &append<float>), std::pair("<i8", &append<int64_t>),
        std::pair("<i4", &append<int32_t>), std::pair("<i2", &append<int16_t>),
        std::pair("<u2", &append<uint16_t>),
        std::pair("|u1", &append<uint8_t>)})
    if (header.contains(type))
      read(result.values, data);
  return result;
}

// Returns samples j · b … (j + 1) · b - 1, each modulo the count.
nn::ReferenceTensor microbatch(const Samples &samples, RankedTensorType type,
                               int64_t j, int64_t count) {
  auto tensor = nn::ReferenceTensor::zeros(type);
  int64_t batch = type.getDimSize(0);
  for (int64_t i = 0; i < type.getNumElements(); ++i) {
    int64_t sample = (j * batch + i / samples.elements) % count;
    double value =
        samples.values[sample * samples.elements + i % samples.elements];
    if (tensor.isFloat())
      tensor.floats[i] = value;
    else
      tensor.ints[i] = int64_t(value);
  }
  return tensor;
}

class OnnxFixtures : public testing::TestWithParam<Fixture> {
protected:
  OwningOpRef<ModuleOp> import(const Fixture &fixture) {
    fsdp::CompileOptions options;
    options.embedWeights = true;
    options.dims = fixture.dims;
    options.dropout = fsdp::TrainingMode::Off;
    auto module =
        importOnnx(models() + "/" + fixture.name + ".onnx", options, &context);
    return succeeded(module) ? std::move(*module) : OwningOpRef<ModuleOp>();
  }
  LogicalResult recognise(ModuleOp module) {
    PassManager passes(&context);
    passes.addPass(createFoldWeightTransposes());
    passes.addPass(createRecogniseComposites());
    passes.addPass(createVerifyInput());
    return passes.run(module);
  }
  double meanLoss(ModuleOp module, const Fixture &fixture) {
    auto function = module.lookupSymbol<func::FuncOp>("microbatch");
    SymbolTable symbols(module);
    std::vector<Samples> samples;
    std::vector<RankedTensorType> types;
    int64_t count = INT64_MAX;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto name = function.getArgAttrOfType<StringAttr>(i, "fsdp.input");
      for (const Input &input : fixture.inputs)
        if (input.name == name.getValue()) {
          types.push_back(
              cast<RankedTensorType>(function.getArgument(i).getType()));
          samples.push_back(readSamples(input, types.back().getShape()));
          count = std::min<int64_t>(count, samples.back().values.size() /
                                               samples.back().elements);
        }
    }
    double sum = 0;
    auto other = [&](Operation *op, ArrayRef<nn::ReferenceTensor> operands)
        -> FailureOr<nn::ReferenceTensors> {
      if (auto load = dyn_cast<fsdp::LoadOp>(op)) {
        auto parameter = symbols.lookup<fsdp::ParameterOp>(load.getSymbol());
        auto value = nn::ReferenceTensor::fromAttr(*parameter.getValue());
        return nn::ReferenceTensors{*value};
      }
      if (isa<fsdp::ReportLossOp>(op))
        sum += operands[0].floats[0];
      nn::ReferenceTensors results;
      for (Type type : op->getResultTypes())
        results.push_back(
            nn::ReferenceTensor::zeros(cast<RankedTensorType>(type)));
      return results;
    };
    constexpr int64_t kMicrobatches = 12;
    for (int64_t j = 0; j < kMicrobatches; ++j) {
      SmallVector<nn::ReferenceTensor> inputs;
      for (size_t i = 0; i < samples.size(); ++i)
        inputs.push_back(microbatch(samples[i], types[i], j, count));
      if (failed(nn::evaluateFunction(function, inputs, other)))
        return NAN;
    }
    return sum / kMicrobatches;
  }

  MLIRContext context;
};

TEST_P(OnnxFixtures, LossIsPyTorchsAndCompositesAreFound) {
  const Fixture &fixture = GetParam();
  auto module = import(fixture);
  ASSERT_TRUE(module);
  if (fixture.loss != 0) {
    EXPECT_NEAR(meanLoss(*module, fixture), fixture.loss, 1e-5 * fixture.loss)
        << "before recognise-composites";
  }
  ASSERT_TRUE(succeeded(recognise(*module)));
  std::map<std::string, int64_t> found;
  for (NamedAttribute count :
       (*module)->getAttrOfType<DictionaryAttr>("fsdp.recognised"))
    found[count.getName().str()] = cast<IntegerAttr>(count.getValue()).getInt();
  EXPECT_EQ(found, fixture.recognised);
  if (fixture.loss != 0) {
    EXPECT_NEAR(meanLoss(*module, fixture), fixture.loss, 1e-5 * fixture.loss);
  }
}

std::vector<Input> text() { return {{"input_ids", "", 0}, {"labels", "", 1}}; }

INSTANTIATE_TEST_SUITE_P(
    Exports, OnnxFixtures,
    testing::Values(Fixture{"gpt",
                            text(),
                            5.829468692291965,
                            {{"attention", 2},
                             {"layer_norm", 5},
                             {"gelu", 2},
                             {"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"gpt_opset18",
                            text(),
                            4.79740560322397,
                            {{"attention", 1},
                             {"layer_norm", 3},
                             {"gelu", 1},
                             {"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"gpt_opset23",
                            text(),
                            4.79740560322397,
                            {{"attention", 1},
                             {"layer_norm", 3},
                             {"gelu", 1},
                             {"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"gpt_dynamic",
                            text(),
                            4.79740560322397,
                            {{"attention", 1},
                             {"layer_norm", 3},
                             {"gelu", 1},
                             {"linear_cross_entropy", 1}},
                            {{"batch", 2}}},
                    Fixture{"gpt_dropout",
                            text(),
                            0,
                            {{"attention", 2},
                             {"layer_norm", 5},
                             {"gelu", 2},
                             {"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"gpt_untied",
                            text(),
                            0,
                            {{"attention", 3},
                             {"layer_norm", 7},
                             {"gelu", 3},
                             {"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"demo_gpt",
                            text(),
                            0,
                            {{"attention", 4},
                             {"layer_norm", 9},
                             {"gelu", 4},
                             {"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"gpt2",
                            {{"input_ids", "gpt2.input_ids.npy"}},
                            4.863389778793377,
                            {{"attention", 2},
                             {"layer_norm", 5},
                             {"gelu", 2},
                             {"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"llama",
                            {{"input_ids", "llama.input_ids.npy"}},
                            4.788227437930669,
                            {{"attention", 2},
                             {"rms_norm", 5},
                             {"silu", 2},
                             {"rotary", 4},
                             {"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"llama_opset23",
                            {{"input_ids", "llama_opset23.input_ids.npy"}},
                            4.793019474351527,
                            {{"attention", 1},
                             {"rms_norm", 3},
                             {"silu", 1},
                             {"rotary", 2},
                             {"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"bert",
                            {{"input_ids", "bert.input_ids.npy"},
                             {"attention_mask", "bert.attention_mask.npy"},
                             {"labels", "bert.labels.npy"}},
                            4.651459413529829,
                            {{"attention", 2},
                             {"layer_norm", 6},
                             {"gelu", 3},
                             {"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"vit",
                            {{"pixel_values", "vit.pixel_values.npy"},
                             {"labels", "vit.labels.npy"}},
                            2.8202280770436,
                            {{"attention", 2},
                             {"layer_norm", 5},
                             {"gelu", 2},
                             {"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"conv_net",
                            {{"pixel_values", "conv_net.pixel_values.npy"},
                             {"labels", "conv_net.labels.npy"}},
                            2.336196551136263,
                            {{"linear_cross_entropy", 1}},
                            {}},
                    Fixture{"upsample",
                            {{"images", "upsample.images.npy"},
                             {"targets", "upsample.targets.npy"}},
                            1.0131306989683717,
                            {{"gelu", 3}},
                            {}},
                    Fixture{"linears",
                            {{"x", "linears.x.npy"}, {"y", "linears.y.npy"}},
                            1.1125150207117278,
                            {},
                            {}}),
    [](const auto &info) { return info.param.name; });

} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ops answer about their linearity, against the reference interpreter:
// f(2x + 3y) is 2 f(x) + 3 f(y) for the operands that are said to be linear,
// and for no other. Axes of library calls are compared slice by slice. The run
// ends with a failure if an op of the dialect is not among the examples.
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/Linearity.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/reference/Reference.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSet.h"
#include "gtest/gtest.h"

#include <cmath>
#include <random>

using namespace mlir;

namespace fsdpc::test {
namespace {

// An op with its operands as arguments of a function.
struct Example {
  std::string arguments, op;
};

std::vector<Example> unaries() {
  std::vector<Example> examples;
  for (const char *name :
       {"neg",     "abs",      "exp",         "log",           "expm1",
        "log1p",   "sqrt",     "rsqrt",       "tanh",          "erf",
        "sigmoid", "softplus", "relu",        "sin",           "cos",
        "atan",    "floor",    "round",       "stop_gradient", "silu",
        "copy",    "softmax",  "log_softmax", "gelu erf",      "gelu tanh"})
    examples.push_back({"%x: tensor<2x5xf64>", std::string("%z = nn.") + name +
                                                   " %x : tensor<2x5xf64>"});
  examples.push_back({"%x: tensor<4xi1>", "%z = nn.not %x : tensor<4xi1>"});
  for (const char *to : {"f32", "i64", "i1"})
    examples.push_back(
        {"%x: tensor<9xf64>",
         std::string("%z = nn.cast %x : tensor<9xf64> -> tensor<9x") + to +
             ">"});
  examples.push_back({"%x: tensor<9xi64>",
                      "%z = nn.cast %x : tensor<9xi64> -> tensor<9xf64>"});
  return examples;
}

std::vector<Example> binaries() {
  std::vector<Example> examples;
  for (const char *name :
       {"add", "sub", "mul", "div", "mod", "pow", "maximum", "minimum",
        "gelu_grad erf", "gelu_grad tanh", "silu_grad", "softmax_grad"})
    examples.push_back(
        {"%x: tensor<2x5xf64>, %y: tensor<2x5xf64>",
         std::string("%z = nn.") + name + " %x, %y : tensor<2x5xf64>"});
  for (const char *name : {"add", "mul", "div"})
    examples.push_back(
        {"%x: tensor<9xi64>, %y: tensor<9xi64>",
         std::string("%z = nn.") + name + " %x, %y : tensor<9xi64>"});
  for (const char *name : {"and", "or", "xor"})
    examples.push_back(
        {"%x: tensor<4xi1>, %y: tensor<4xi1>",
         std::string("%z = nn.") + name + " %x, %y : tensor<4xi1>"});
  examples.push_back({"%x: tensor<9xf64>, %y: tensor<9xf64>",
                      "%z = nn.cmp gt %x, %y : tensor<9xf64> -> tensor<9xi1>"});
  return examples;
}

const Example others[] = {
    {"", "%z = nn.constant dense<2.0> : tensor<2xf64>"},
    {"", "%z = nn.iota {axis = 0 : i64} : tensor<3xf64>"},
    {"%r: tensor<4xi32>",
     "%z = nn.uniform %r {op = 3 : i64} : tensor<4xi32> -> tensor<8xf32>"},
    {"%x: tensor<8xf64>, %r: tensor<4xi32>",
     "%z = nn.dropout %x, %r {op = 7 : i64, ratio = 0.5 : f64} : "
     "tensor<8xf64>, "
     "tensor<4xi32>"},
    {"%x: tensor<8xf32>, %w: tensor<8xi32>",
     "%z = nn.round_stochastic %x, %w : tensor<8xf32>, tensor<8xi32>"},
    {"%c: tensor<8xi1>, %x: tensor<8xf64>, %y: tensor<8xf64>",
     "%z = nn.select %c, %x, %y : tensor<8xi1>, tensor<8xf64>"},
    {"%x: tensor<3xf64>",
     "%z = nn.broadcast %x : tensor<3xf64> -> tensor<2x3xf64>"},
    {"%x: tensor<6xf64>",
     "%z = nn.reshape %x : tensor<6xf64> -> tensor<2x3xf64>"},
    {"%x: tensor<2x3xf64>",
     "%z = nn.transpose %x [1, 0] : tensor<2x3xf64> -> tensor<3x2xf64>"},
    {"%x: tensor<2x3xf64>",
     "%z = nn.slice %x [0, 2] by [1, -1] : tensor<2x3xf64> -> tensor<2x2xf64>"},
    {"%x: tensor<2x3xf64>",
     "%z = nn.pad %x [0, 1] by [1, 1] : tensor<2x3xf64> -> tensor<2x5xf64>"},
    {"%x: tensor<2x3xf64>, %y: tensor<2x2xf64>",
     "%z = nn.concat %x, %y {axis = 1 : i64} : (tensor<2x3xf64>, "
     "tensor<2x2xf64>) "
     "-> tensor<2x5xf64>"},
    {"%x: tensor<2x3xf64>",
     "%z = nn.reduce sum %x [1] : tensor<2x3xf64> -> tensor<2x1xf64>"},
    {"%x: tensor<2x3xf64>",
     "%z = nn.reduce max %x [1] : tensor<2x3xf64> -> tensor<2x1xf64>"},
    {"%x: tensor<2x3xf64>",
     "%z = nn.reduce min %x [1] : tensor<2x3xf64> -> tensor<2x1xf64>"},
    {"%x: tensor<2x3xf64>",
     "%z = nn.reduce prod %x [1] : tensor<2x3xf64> -> tensor<2x1xf64>"},
    {"%x: tensor<3x4xf64>, %i: tensor<3x1xi64>",
     "%z = nn.take_along_axis %x, %i : tensor<3x4xf64>, tensor<3x1xi64> -> "
     "tensor<3x1xf64>"},
    {"%t: tensor<4x3xf64>, %i: tensor<5xi64>",
     "%z = nn.embedding %t, %i : tensor<4x3xf64>, tensor<5xi64> -> "
     "tensor<5x3xf64>"},
    {"%g: tensor<5x3xf64>, %i: tensor<5xi64>, %a: tensor<4x3xf64>",
     "%z = nn.embedding_grad %g, %i accumulate %a : tensor<5x3xf64>, "
     "tensor<5xi64>, "
     "accumulate tensor<4x3xf64> -> tensor<4x3xf64>"},
    {"%x: tensor<3x8xf64>, %c: tensor<1x8xf64>, %s: tensor<1x8xf64>",
     "%z = nn.rotary %x, %c, %s : tensor<3x8xf64>, tensor<1x8xf64>, "
     "tensor<1x8xf64>"}};

const Example norms[] = {
    {"%x: tensor<2x8xf64>, %w: tensor<8xf64>, %b: tensor<8xf64>",
     "%z:3 = nn.layer_norm %x weight %w bias %b {epsilon = 1.0e-5 : f64} : "
     "tensor<2x8xf64>, weight tensor<8xf64>, bias tensor<8xf64> -> "
     "tensor<2x8xf64>, tensor<2xf64>, tensor<2xf64>"},
    {"%g: tensor<2x8xf64>, %x: tensor<2x8xf64>, %m: tensor<2xf64>, %r: "
     "tensor<2xf64>, %w: tensor<8xf64>",
     "%z = nn.layer_norm_grad %g, %x, %m, %r weight %w : tensor<2x8xf64>, "
     "tensor<2xf64>, weight tensor<8xf64> -> tensor<2x8xf64>"},
    {"%x: tensor<2x8xf64>, %w: tensor<8xf64>",
     "%z:2 = nn.rms_norm %x weight %w {epsilon = 1.0e-5 : f64} : "
     "tensor<2x8xf64>, "
     "weight tensor<8xf64> -> tensor<2x8xf64>, tensor<2xf64>"},
    {"%g: tensor<2x8xf64>, %x: tensor<2x8xf64>, %r: tensor<2xf64>, %w: "
     "tensor<8xf64>",
     "%z = nn.rms_norm_grad %g, %x, %r weight %w : tensor<2x8xf64>, "
     "tensor<2xf64>, "
     "weight tensor<8xf64> -> tensor<2x8xf64>"},
    {"%g: tensor<2x8xf64>, %x: tensor<2x8xf64>, %m: tensor<2xf64>, %r: "
     "tensor<2xf64>",
     "%z = nn.norm_weight_grad %g, %x mean %m rstd %r : tensor<2x8xf64>, "
     "tensor<2xf64>, mean tensor<2xf64> -> tensor<8xf64>"},
    {"%x: tensor<2x3x4xf64>, %w: tensor<3xf64>, %b: tensor<3xf64>",
     "%z:3 = nn.batch_norm %x, %w, %b {epsilon = 1.0e-5 : f64} : "
     "tensor<2x3x4xf64>, "
     "tensor<3xf64> -> tensor<2x3x4xf64>, tensor<3xf64>, tensor<3xf64>"},
    {"%g: tensor<2x3x4xf64>, %x: tensor<2x3x4xf64>, %w: tensor<3xf64>, %m: "
     "tensor<3xf64>, %v: tensor<3xf64>",
     "%z:3 = nn.batch_norm_grad %g, %x, %w, %m, %v {epsilon = 1.0e-5 : f64} : "
     "tensor<2x3x4xf64>, tensor<3xf64>, tensor<3xf64> -> tensor<2x3x4xf64>, "
     "tensor<3xf64>, tensor<3xf64>"}};

const Example losses[] = {
    {"%x: tensor<5x9xf64>, %t: tensor<5xi64>, %w: tensor<9xf64>",
     "%z:3 = nn.cross_entropy mean %x, %t weights %w : tensor<5x9xf64>, "
     "tensor<5xi64>, weights tensor<9xf64> -> tensor<f64>, tensor<5xf64>, "
     "tensor<f64>"},
    {"%g: tensor<f64>, %x: tensor<5x9xf64>, %t: tensor<5xi64>, %l: "
     "tensor<5xf64>, %v: tensor<f64>, %w: tensor<9xf64>",
     "%z = nn.cross_entropy_grad mean %g, %x, %t, %l, %v weights %w : "
     "tensor<f64>, "
     "tensor<5x9xf64>, tensor<5xi64>, tensor<5xf64>, weights tensor<9xf64> -> "
     "tensor<5x9xf64>"},
    {"%x: tensor<5x9xf64>, %t: tensor<5xi64>, %w: tensor<5xf64>, %f: "
     "tensor<5xf64>",
     "%z:2 = nn.cross_entropy_rows %x, %t, %w, %f : tensor<5x9xf64>, "
     "tensor<5xi64>, "
     "tensor<5xf64>"},
    {"%x: tensor<5x4xf64>, %w: tensor<4x9xf64>, %b: tensor<9xf64>, %t: "
     "tensor<5xi64>, %s: tensor<f64>",
     "%z:5 = nn.linear_cross_entropy mean %x, %w, %t bias %b scale %s : "
     "tensor<5x4xf64>, tensor<4x9xf64>, tensor<5xi64> bias tensor<9xf64> scale "
     "tensor<f64> -> tensor<f64>, tensor<f64>, tensor<9xf64>"}};

const std::string convolution =
    " {dilations = array<i64: 1, 1>, groups = 2 : i64, pads = array<i64: 1, 1, "
    "1, 1>, strides = array<i64: 2, 2>} : ";
// Any position within a window is one in the image.
const std::string pooling =
    " {kernel = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, strides = "
    "array<i64: 2, 2>} : ";
const std::string image = "tensor<3x4x8x8xf64>", pooled = "tensor<3x4x4x4xf64>",
                  index = "tensor<3x4x4x4xi32>", result = "tensor<3x6x4x4xf64>",
                  filter = "tensor<6x2x3x3xf64>";

const std::string attended =
    "tensor<2x4x5x8xf64>, tensor<2x2x6x8xf64>, tensor<2x2x6x3xf64>";
const std::string outputs = "tensor<2x4x5x3xf64>, tensor<2x4x5xf64>";

const Example calls[] = {
    {"%a: tensor<2x3x4xf64>, %b: tensor<5x4xf64>",
     "%z = nn.matmul %a, %b {transpose_b} : tensor<2x3x4xf64>, tensor<5x4xf64> "
     "-> "
     "tensor<2x3x5xf64>"},
    {"%a: tensor<2x4x3xf64>, %b: tensor<6x2x4x5xf64>",
     "%z = nn.matmul %a, %b {transpose_a} : tensor<2x4x3xf64>, "
     "tensor<6x2x4x5xf64> "
     "-> tensor<6x2x3x5xf64>"},
    {"%a: tensor<2x3x4xf64>, %b: tensor<4x5xf64>, %c: tensor<5xf64>",
     "%z = nn.matmul %a, %b accumulate %c : tensor<2x3x4xf64>, "
     "tensor<4x5xf64>, "
     "accumulate tensor<5xf64> -> tensor<2x3x5xf64>"},
    {"%a: tensor<4x3xf64>, %b: tensor<3x8xf64>, %c: tensor<8xf64>",
     "%z:2 = nn.fused_matmul gelu %a, %b bias %c : (tensor<4x3xf64>, "
     "tensor<3x8xf64>, "
     "tensor<8xf64>) -> (tensor<4x8xf64>, tensor<4x8xf64>)"},
    {"%x: " + image + ", %f: " + filter, "%z = nn.conv2d %x, %f" + convolution +
                                             image + ", " + filter + " -> " +
                                             result},
    {"%g: " + result + ", %f: " + filter, "%z = nn.conv2d_grad_input %g, %f" +
                                              convolution + result + ", " +
                                              filter + " -> " + image},
    {"%g: " + result + ", %x: " + image, "%z = nn.conv2d_grad_filter %g, %x" +
                                             convolution + result + ", " +
                                             image + " -> " + filter},
    {"%x: " + image, "%z:2 = nn.max_pool2d %x" + pooling + image + " -> " +
                         pooled + ", " + index},
    {"%g: " + pooled + ", %i: " + index, "%z = nn.max_pool2d_grad %g, %i" +
                                             pooling + pooled + ", " + index +
                                             " -> " + image},
    {"%x: " + image,
     "%z = nn.avg_pool2d %x" + pooling + image + " -> " + pooled},
    {"%g: " + pooled,
     "%z = nn.avg_pool2d_grad %g" + pooling + pooled + " -> " + image},
    {"%q: tensor<2x4x5x8xf64>, %k: tensor<2x2x6x8xf64>, %v: "
     "tensor<2x2x6x3xf64>, %m: tensor<2x4x5x6xf64>",
     "%z:2 = nn.attention %q, %k, %v mask %m {scale = 0.35 : f64} : " +
         attended + ", mask tensor<2x4x5x6xf64> -> " + outputs},
    {"%g: tensor<2x4x5x3xf64>, %q: tensor<2x4x5x8xf64>, %k: "
     "tensor<2x2x6x8xf64>, %v: tensor<2x2x6x3xf64>, %o: tensor<2x4x5x3xf64>, "
     "%l: tensor<2x4x5xf64>",
     "%z:3 = nn.attention_grad %g, %q, %k, %v, %o, %l {scale = 0.35 : f64} : "
     "tensor<2x4x5x3xf64>, " +
         attended + ", " + outputs + " -> " + attended}};

// Those that the reference does not evaluate by themselves.
const char *const unchecked[] = {"nn.launch", "nn.cotangent",
                                 "nn.custom_gradient"};

class Linearity : public testing::Test {
protected:
  Linearity() { context.loadDialect<nn::NNDialect, func::FuncDialect>(); }

  // Returns the op of an example.
  Operation *parse(const Example &example) {
    module =
        parseSourceString<ModuleOp>("func.func @f(" + example.arguments +
                                        ") {\n" + example.op + "\nreturn\n}",
                                    &context);
    if (!module)
      return nullptr;
    auto function = *module->getOps<func::FuncOp>().begin();
    return &function.getFunctionBody().front().front();
  }

  // Integers serve as indices and truth values too.
  nn::ReferenceTensors draw(Operation *op, bool isPositive = false) {
    nn::ReferenceTensors values;
    std::uniform_real_distribution<double> real(isPositive ? 0.5 : -2, 2);
    for (Value operand : op->getOperands()) {
      auto type = cast<RankedTensorType>(operand.getType());
      std::uniform_int_distribution<int64_t> integer(
          0, type.getElementType().isInteger(1) ? 1 : 3);
      values.push_back(nn::ReferenceTensor::zeros(type));
      for (double &value : values.back().floats)
        value = real(generator);
      for (int64_t &value : values.back().ints)
        value = integer(generator);
    }
    return values;
  }

  static nn::ReferenceTensors compute(Operation *op,
                                      const nn::ReferenceTensors &operands) {
    auto results = nn::evaluate(op, operands);
    EXPECT_TRUE(succeeded(results));
    return succeeded(results) ? *results : nn::ReferenceTensors();
  }

  static double element(const nn::ReferenceTensor &tensor, size_t i) {
    return tensor.isFloat() ? tensor.floats[i] : double(tensor.ints[i]);
  }

  // Returns true if f(2x + 3y) = 2 f(x) + 3 f(y) for operands that vary
  // together. The root of a negative number is none on both sides.
  bool isLinear(Operation *op, ArrayRef<unsigned> varied, bool isPositive) {
    nn::ReferenceTensors x = draw(op, isPositive), y = x, sum = x,
                         drawn = draw(op, isPositive);
    for (unsigned number : varied) {
      y[number] = drawn[number];
      for (size_t i = 0; i < sum[number].floats.size(); ++i)
        sum[number].floats[i] =
            2 * x[number].floats[i] + 3 * y[number].floats[i];
      for (size_t i = 0; i < sum[number].ints.size(); ++i)
        sum[number].ints[i] = 2 * x[number].ints[i] + 3 * y[number].ints[i];
    }
    nn::ReferenceTensors ofX = compute(op, x), ofY = compute(op, y),
                         ofSum = compute(op, sum);
    for (size_t which = 0; which < ofSum.size(); ++which)
      for (size_t i = 0; i < size_t(ofSum[which].size()); ++i) {
        double expected =
            2 * element(ofX[which], i) + 3 * element(ofY[which], i);
        double actual = element(ofSum[which], i);
        bool isSame =
            std::abs(actual - expected) <= 1e-6 * (1 + std::abs(expected)) ||
            (std::isnan(actual) && std::isnan(expected));
        if (!isSame)
          return false;
      }
    return true;
  }

  void checkAnswers(const Example &example) {
    SCOPED_TRACE(example.op);
    Operation *op = parse(example);
    ASSERT_TRUE(op);
    checked.insert(op->getName().getStringRef());
    auto isInteger = [](Value value) {
      return getElementTypeOrSelf(value.getType()).isInteger();
    };
    bool isOfIntegers = llvm::all_of(op->getOperands(), isInteger);
    SmallVector<unsigned> terms;
    auto expectLinear = [&](ArrayRef<unsigned> varied) {
      for (bool isPositive : {true, false})
        EXPECT_TRUE(isLinear(op, varied, isPositive))
            << "with operand " << varied.front();
    };
    for (OpOperand &operand : op->getOpOperands()) {
      unsigned number = operand.getOperandNumber();
      nn::Linearity answer = nn::linearityIn(operand);
      if (answer == nn::Linearity::Term)
        terms.push_back(number);
      else if (answer == nn::Linearity::Factor)
        expectLinear({number});
      // Twice an index is not an index.
      else if (isOfIntegers || !isInteger(operand.get()))
        EXPECT_FALSE(isLinear(op, {number}, true) &&
                     isLinear(op, {number}, false))
            << "operand " << number;
      if (isInteger(operand.get()) && !isOfIntegers)
        EXPECT_EQ(int(answer), int(nn::Linearity::None)) << number;
    }
    if (!terms.empty())
      expectLinear(terms);
  }

  // Changes each slice of each operand along each axis with an answer, and
  // compares all others of the results.
  void checkAxes(const Example &example) {
    SCOPED_TRACE(example.op);
    auto call = dyn_cast_or_null<nn::LibraryCallOpInterface>(parse(example));
    ASSERT_TRUE(call);
    nn::ReferenceTensors operands = draw(call),
                         before = compute(call, operands);
    bool hasAnswer = false;
    for (auto [number, operand] : llvm::enumerate(operands))
      for (auto [axis, size] : llvm::enumerate(operand.shape)) {
        auto to = call.getResultAxis(unsigned(number), int64_t(axis));
        hasAnswer |= to.has_value();
        for (int64_t slice = 0; to && slice < size; ++slice) {
          nn::ReferenceTensors changed = operands;
          change(changed[number], axis, slice);
          nn::ReferenceTensors after = compute(call, changed);
          for (auto [one, other] : llvm::zip_equal(before, after)) {
            EXPECT_EQ(one.shape[*to], size);
            for (size_t i = 0; i < size_t(one.size()); ++i)
              if (sliceOf(one, *to, i) != slice)
                EXPECT_EQ(element(one, i), element(other, i))
                    << "axis " << axis << " of operand " << number;
          }
        }
      }
    EXPECT_EQ(hasAnswer, !isa<nn::FusedMatmulOp>(call));
  }

  static int64_t sliceOf(const nn::ReferenceTensor &tensor, size_t axis,
                         size_t element) {
    int64_t inner = 1;
    for (int64_t size : ArrayRef<int64_t>(tensor.shape).drop_front(axis + 1))
      inner *= size;
    return int64_t(element) / inner % tensor.shape[axis];
  }

  static void change(nn::ReferenceTensor &tensor, size_t axis, int64_t slice) {
    for (size_t i = 0; i < size_t(tensor.size()); ++i) {
      if (sliceOf(tensor, axis, i) != slice)
        continue;
      if (tensor.isFloat())
        tensor.floats[i] += 1;
      else
        tensor.ints[i] = (tensor.ints[i] + 1) % 4;
    }
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::mt19937 generator{1};
  llvm::StringSet<> checked;
};

TEST_F(Linearity, EveryAnswerIsTheReferences) {
  for (const std::vector<Example> &examples : {unaries(), binaries()})
    llvm::for_each(examples, [&](const Example &e) { checkAnswers(e); });
  for (ArrayRef<Example> examples :
       {ArrayRef<Example>(others), ArrayRef<Example>(norms),
        ArrayRef<Example>(losses), ArrayRef<Example>(calls)})
    llvm::for_each(examples, [&](const Example &e) { checkAnswers(e); });
  for (RegisteredOperationName op : context.getRegisteredOperations())
    if (op.hasInterface<nn::LinearityOpInterface>() &&
        !llvm::is_contained(unchecked, op.getStringRef()))
      EXPECT_TRUE(checked.contains(op.getStringRef()))
          << "no example of " << op.getStringRef().str();
}

TEST_F(Linearity, SlicesAlongAxesOfCallsStayApart) {
  for (const Example &example : calls)
    checkAxes(example);
}

// A sum with a constant is linear only where that is 0, and a product only if
// one factor varies.
TEST_F(Linearity, OperandsThatVaryTogether) {
  auto isLinearIn = [&](const std::string &op, ArrayRef<unsigned> varied,
                        ArrayRef<unsigned> zeros = {}) {
    parse({"%x: tensor<2xf64>, %y: tensor<2xf64>",
           "%0 = nn.constant dense<0.0> : tensor<2xf64>\n"
           "%1 = nn.constant dense<1.0> : tensor<2xf64>\n%z = nn." +
               op + " : tensor<2xf64>"});
    EXPECT_TRUE(module);
    Operation *last = nullptr;
    module->walk([&](nn::LinearityOpInterface each) { last = each; });
    auto isOneOf = [](ArrayRef<unsigned> numbers) {
      return [numbers](OpOperand &operand) {
        return llvm::is_contained(numbers, operand.getOperandNumber());
      };
    };
    return nn::isLinearIn(last, isOneOf(varied), isOneOf(zeros));
  };
  EXPECT_TRUE(isLinearIn("add %x, %y", {0, 1}));
  EXPECT_TRUE(isLinearIn("add %x, %0", {0}));
  EXPECT_FALSE(isLinearIn("add %x, %1", {0}));
  EXPECT_TRUE(isLinearIn("add %x, %y", {0}, {1}));
  EXPECT_TRUE(isLinearIn("mul %x, %y", {0}));
  EXPECT_FALSE(isLinearIn("mul %x, %y", {0, 1}));
  EXPECT_TRUE(isLinearIn("div %x, %1", {0}));
  EXPECT_FALSE(isLinearIn("div %1, %x", {1}));
  EXPECT_FALSE(isLinearIn("exp %x", {0}));
}

TEST_F(Linearity, ValuesThatStay) {
  auto keeps = [&](const std::string &op) {
    return nn::keepsValue(parse({"%x: tensor<2xf64>", "%z = nn." + op}));
  };
  EXPECT_TRUE(keeps("copy %x : tensor<2xf64>"));
  EXPECT_TRUE(keeps("stop_gradient %x : tensor<2xf64>"));
  EXPECT_TRUE(keeps("cast %x : tensor<2xf64> -> tensor<2xi64>"));
  EXPECT_FALSE(keeps("neg %x : tensor<2xf64>"));
}

} // namespace
} // namespace fsdpc::test

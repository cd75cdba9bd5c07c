// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The comparison with central differences that all tests of adjoints share. It
// builds f(x) = Σ cotangent · op(x), differentiates it with buildAdjoint, and
// compares each element of the gradient with (f(x + h) - f(x - h)) / 2h. All
// values are f64, so differences are accurate to some 1e-6.
#include "tests/compiler/dialects/nn/adjoint_test.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/GradientOps.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/dialects/nn/reference/Reference.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSet.h"
#include "gtest/gtest.h"

using namespace mlir;

namespace fsdpc::test {

namespace {

// Short, since a maximum may change its element within it, by chance.
constexpr double kStep = 1e-7;
constexpr double kTolerance = 1e-6;

// The names of the ops that were checked so far.
llvm::StringSet<> &checkedOps() {
  static llvm::StringSet<> ops;
  return ops;
}

// Fails after a run of all tests if an op with an adjoint was not checked. The
// gradient of nn.stop_gradient is zero whatever its slope, and that of
// nn.custom_gradient is the model's own.
class EveryAdjoint : public testing::Environment {
public:
  void TearDown() override {
    if (testing::GTEST_FLAG(filter) != "*")
      return;
    MLIRContext context;
    context.loadDialect<nn::NNDialect>();
    for (RegisteredOperationName op : context.getRegisteredOperations())
      if (op.hasInterface<nn::AdjointOpInterface>() &&
          op.getStringRef() != nn::StopGradientOp::getOperationName() &&
          op.getStringRef() != nn::CustomGradientOp::getOperationName() &&
          !checkedOps().contains(op.getStringRef()))
        ADD_FAILURE() << "no test differentiates " << op.getStringRef().str();
  }
};

const testing::Environment *everyAdjoint =
    testing::AddGlobalTestEnvironment(new EveryAdjoint);

class AdjointCheck {
public:
  AdjointCheck(const std::string &body, unsigned seed)
      : text(body + "seed " + std::to_string(seed)), generator(seed) {
    context.loadDialect<nn::NNDialect, func::FuncDialect>();
    context.allowUnregisteredDialects();
    module = parseSourceString<ModuleOp>(body, &context);
  }

  void run() {
    ASSERT_TRUE(module) << text;
    function = *module->getOps<func::FuncOp>().begin();
    draw();
    double scale = 0;
    std::vector<std::vector<double>> expected;
    for (BlockArgument argument : wanted()) {
      expected.push_back(differences(argument.getArgNumber()));
      for (double value : expected.back())
        scale = std::max(scale, std::abs(value));
    }
    differentiate();
    if (HasFatalFailure())
      return;
    auto actual = nn::evaluateFunction(function, inputs);
    ASSERT_TRUE(succeeded(actual)) << text;
    for (size_t i = 0; i < expected.size(); ++i)
      for (size_t j = 0; j < expected[i].size(); ++j)
        ASSERT_NEAR((*actual)[i].floats[j], expected[i][j],
                    kTolerance * (1 + scale))
            << "element " << j << " of gradient " << i << " of\n"
            << text;
  }

private:
  static bool HasFatalFailure() { return testing::Test::HasFatalFailure(); }

  SmallVector<BlockArgument> wanted() {
    SmallVector<BlockArgument> result;
    for (unsigned i = 0; i < numArguments; ++i)
      if (inputs[i].isFloat() && !function.getArgAttr(i, "test.fixed"))
        result.push_back(function.getArgument(i));
    return result;
  }

  // Draws random arguments and a random cotangent of the result.
  void draw() {
    numArguments = function.getNumArguments();
    for (BlockArgument argument : function.getArguments()) {
      unsigned number = argument.getArgNumber();
      inputs.push_back(nn::ReferenceTensor::zeros(
          cast<RankedTensorType>(argument.getType())));
      bool positive = bool(function.getArgAttr(number, "test.positive"));
      std::uniform_real_distribution<double> real(positive ? 0.5 : -2, 2);
      for (double &value : inputs.back().floats)
        value = real(generator);
      auto bound = function.getArgAttrOfType<IntegerAttr>(number, "test.bound");
      std::uniform_int_distribution<int64_t> integer(
          0, bound ? bound.getInt() - 1 : 1);
      for (int64_t &value : inputs.back().ints)
        value = integer(generator);
    }
    cotangent = nn::ReferenceTensor::zeros(
        cast<RankedTensorType>(function.getResultTypes().front()));
    std::normal_distribution<double> normal;
    for (double &value : cotangent.floats)
      value = normal(generator);
  }

  // Returns Σ cotangent · result.
  double objective() {
    auto results = nn::evaluateFunction(function, inputs);
    EXPECT_TRUE(succeeded(results)) << text;
    double sum = 0;
    for (size_t i = 0; succeeded(results) && i < cotangent.floats.size(); ++i)
      sum += cotangent.floats[i] * results->front().floats[i];
    return sum;
  }

  std::vector<double> differences(unsigned argument) {
    std::vector<double> result;
    for (double &value : inputs[argument].floats) {
      double at = value;
      value = at + kStep;
      double above = objective();
      value = at - kStep;
      double below = objective();
      value = at;
      result.push_back((above - below) / (2 * kStep));
    }
    return result;
  }

  // Makes the function return the gradients of the wanted arguments.
  void differentiate() {
    Block &body = function.getFunctionBody().front();
    Operation *terminator = body.getTerminator();
    Value result = terminator->getOperand(0);
    Operation *op = result.getDefiningOp();
    checkedOps().insert(op->getName().getStringRef());
    Value seed = body.addArgument(result.getType(), op->getLoc());
    inputs.push_back(cotangent);
    SmallVector<Value> resultGrads(op->getNumResults());
    resultGrads[cast<OpResult>(result).getResultNumber()] = seed;
    SmallVector<BlockArgument> arguments = wanted();
    SmallVector<bool> needed;
    for (Value operand : op->getOperands())
      needed.push_back(llvm::is_contained(arguments, operand));
    SmallVector<Value> operandGrads(op->getNumOperands());
    OpBuilder builder(terminator);
    ASSERT_TRUE(succeeded(cast<nn::AdjointOpInterface>(op).buildAdjoint(
        builder, resultGrads, needed, operandGrads)))
        << text;
    SmallVector<Value> gradients;
    for (BlockArgument argument : arguments)
      gradients.push_back(sumOfUses(builder, op, argument, operandGrads));
    terminator->setOperands(gradients);
    function.setType(FunctionType::get(&context, body.getArgumentTypes(),
                                       ValueRange(gradients).getTypes()));
    ASSERT_TRUE(succeeded(verify(*module))) << text;
  }

  // Sums the gradients of an argument that the op uses several times. A
  // gradient that is left null counts as zero.
  static Value sumOfUses(OpBuilder &builder, Operation *op, Value argument,
                         ArrayRef<Value> operandGrads) {
    auto type = cast<RankedTensorType>(argument.getType());
    Value sum = nn::ConstantOp::create(
        builder, op->getLoc(), type,
        DenseElementsAttr::get(type, builder.getF64FloatAttr(0)));
    for (auto [operand, gradient] : llvm::zip(op->getOperands(), operandGrads))
      if (operand == argument && gradient) {
        EXPECT_EQ(gradient.getType(), argument.getType());
        sum = nn::AddOp::create(builder, op->getLoc(), sum, gradient);
      }
    return sum;
  }

  std::string text;
  std::mt19937 generator;
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  func::FuncOp function;
  unsigned numArguments = 0;
  nn::ReferenceTensors inputs;
  nn::ReferenceTensor cotangent;
};

} // namespace

std::string tensor(const std::vector<int64_t> &shape,
                   const std::string &element) {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + element + ">";
}

std::string list(const std::vector<int64_t> &numbers) {
  std::string text = "[";
  for (int64_t number : numbers)
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  return text + "]";
}

void checkAdjoint(const std::string &arguments, const std::string &body,
                  const std::string &result, unsigned seed) {
  AdjointCheck("func.func @f(" + arguments + ") -> " + result + " {\n  " +
                   body + "\n  return %y : " + result + "\n}\n",
               seed)
      .run();
}

} // namespace fsdpc::test

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns the region of an fsdp.loss_weight into the program of the manifest,
// which the runtime interprets. An op that is not here cannot stand in such a
// region, and a mean whose weight needs it stays that of its microbatch.
#include "compiler/dialects/fsdp/WeightPrograms.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace fsdpc::fsdp {
namespace {

double numberOf(Attribute value) {
  if (auto number = dyn_cast<FloatAttr>(value))
    return number.getValueAsDouble();
  auto integer = cast<IntegerAttr>(value);
  // A truth value is 1, and not -1.
  return integer.getType().isInteger(1)
             ? double(integer.getValue().getZExtValue())
             : double(integer.getValue().getSExtValue());
}

// Returns the elements of a constant, or one for all of them; none while they
// lie in a file beside the dump that is read.
std::vector<double> elementsOf(ElementsAttr value) {
  auto dense = dyn_cast<DenseElementsAttr>(value);
  if (dense && dense.isSplat())
    return {numberOf(dense.getSplatValue<Attribute>())};
  std::vector<double> numbers;
  if (!dense)
    return numbers;
  for (Attribute element : dense.getValues<Attribute>())
    numbers.push_back(numberOf(element));
  return numbers;
}

// A cast and a quotient round where the type holds less than an f64.
std::string roundingOf(Type element) {
  if (element.isInteger(1))
    return "b";
  return element.isInteger() ? "i" : "";
}

std::vector<int64_t> join(ArrayRef<int64_t> one, ArrayRef<int64_t> other) {
  std::vector<int64_t> both(one);
  both.insert(both.end(), other.begin(), other.end());
  return both;
}

} // namespace

std::optional<WeightStep> weightStepOf(Operation *op) {
  if (op->getNumResults() != 1)
    return std::nullopt;
  WeightStep step;
  step.op = op->getName().stripDialect().str();
  step.shape = nn::shapeOf(op->getResult(0)).vec();
  bool known =
      llvm::TypeSwitch<Operation *, bool>(op)
          .Case([&](nn::ConstantOp constant) {
            step.values = elementsOf(constant.getValue());
            return true;
          })
          .Case<nn::IotaOp, nn::ConcatOp>([&](auto along) {
            step.numbers = {int64_t(along.getAxis())};
            return true;
          })
          .Case([&](nn::TransposeOp transpose) {
            step.numbers = transpose.getPermutation().vec();
            return true;
          })
          .Case<nn::SliceOp, nn::PadOp>([&](auto part) {
            step.numbers = join(part.getOffsets(), part.getStrides());
            return true;
          })
          .Case([&](nn::ReduceOp reduce) {
            step.numbers = reduce.getAxes().vec();
            step.kind = nn::stringifyReduceKind(reduce.getKind()).str();
            return true;
          })
          .Case([&](nn::CmpOp compare) {
            step.kind = nn::stringifyPredicate(compare.getPredicate()).str();
            return true;
          })
          .Case<nn::CastOp, nn::DivOp, nn::ModOp>([&](auto rounds) {
            step.kind =
                roundingOf(nn::tensorType(rounds.getResult()).getElementType());
            return true;
          })
          .Case<nn::BroadcastOp, nn::ReshapeOp, nn::NegOp, nn::AbsOp, nn::NotOp,
                nn::CopyOp, nn::StopGradientOp, nn::ReluOp, nn::FloorOp,
                nn::RoundOp, nn::ExpOp, nn::Expm1Op, nn::LogOp, nn::Log1pOp,
                nn::SqrtOp, nn::RsqrtOp, nn::TanhOp, nn::ErfOp, nn::SinOp,
                nn::CosOp, nn::AtanOp, nn::SigmoidOp, nn::AddOp, nn::SubOp,
                nn::MulOp, nn::PowOp, nn::MaximumOp, nn::MinimumOp, nn::AndOp,
                nn::OrOp, nn::XorOp, nn::SelectOp, nn::TakeAlongAxisOp,
                nn::EmbeddingOp>([](Operation *) { return true; })
          .Default(false);
  return known ? std::optional(std::move(step)) : std::nullopt;
}

// The op's verifier has found a step for each op.
static WeightProgram programOf(LossWeightOp weight, Block &body) {
  WeightProgram program;
  DenseMap<Value, int32_t> numbers;
  auto add = [&](Value result, WeightStep step) {
    numbers[result] = int32_t(program.steps.size());
    program.steps.push_back(std::move(step));
  };
  for (auto [argument, name] :
       llvm::zip_equal(body.getArguments(),
                       weight.getInputs().getAsValueRange<StringAttr>())) {
    WeightStep step;
    step.op = "input";
    step.kind = name.str();
    step.shape = nn::shapeOf(argument).vec();
    add(argument, std::move(step));
  }
  for (Operation &op : body.without_terminator()) {
    WeightStep step = *weightStepOf(&op);
    for (Value operand : op.getOperands())
      step.operands.push_back(numbers.at(operand));
    add(op.getResult(0), std::move(step));
  }
  // The last step is the result.
  WeightStep last;
  last.op = "reshape";
  last.operands = {numbers.at(body.getTerminator()->getOperand(0))};
  program.steps.push_back(std::move(last));
  return program;
}

LossWeight lossWeightOf(LossWeightOp op) {
  LossWeight weight;
  weight.name = op.getSymName().str();
  auto numberOr0 = [](std::optional<APFloat> number) {
    return number ? number->convertToDouble() : 0;
  };
  weight.atLeast = numberOr0(op.getAtLeast());
  weight.plus = numberOr0(op.getPlus());
  for (Region &region : op.getCounts())
    weight.programs.push_back(programOf(op, region.front()));
  return weight;
}

} // namespace fsdpc::fsdp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns the region of an fsdp.loss_weight into the program of the manifest,
// which the runtime interprets. An op that has no row in
// runtime/abi/weight_ops.h cannot stand in such a region, and a mean whose
// weight needs it stays that of its microbatch.
#include "compiler/dialects/fsdp/WeightPrograms.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "runtime/abi/weight_ops.h"

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
  const WeightOp *known = isa_and_nonnull<nn::NNDialect>(op->getDialect())
                              ? findWeightOp(op->getName().stripDialect())
                              : nullptr;
  if (!known)
    return std::nullopt;
  WeightStep step;
  step.op = known->name;
  auto result = nn::tensorType(op->getResult(0));
  step.shape = result.getShape().vec();
  auto numbersOf = [&](StringRef name) {
    return op->getAttrOfType<DenseI64ArrayAttr>(name).asArrayRef();
  };
  switch (known->field) {
  case WeightField::None:
    break;
  case WeightField::Values:
    step.values = elementsOf(cast<nn::ConstantOp>(op).getValue());
    break;
  case WeightField::Axis:
    step.numbers = {op->getAttrOfType<IntegerAttr>("axis").getInt()};
    break;
  case WeightField::Permutation:
    step.numbers = numbersOf("permutation").vec();
    break;
  case WeightField::Places:
    step.numbers = join(numbersOf("offsets"), numbersOf("strides"));
    break;
  case WeightField::Reduction:
    step.numbers = numbersOf("axes").vec();
    step.kind = nn::stringifyReduceKind(cast<nn::ReduceOp>(op).getKind()).str();
    break;
  case WeightField::Predicate:
    step.kind =
        nn::stringifyPredicate(cast<nn::CmpOp>(op).getPredicate()).str();
    break;
  case WeightField::Rounding:
    step.kind = roundingOf(result.getElementType());
    break;
  }
  return step;
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
  weight.perMicrobatch = op.getPerMicrobatch();
  for (Region &region : op.getCounts())
    weight.programs.push_back(programOf(op, region.front()));
  return weight;
}

} // namespace fsdpc::fsdp

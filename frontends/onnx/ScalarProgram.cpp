// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts nn ops to arith and math by the scalar code that each elementwise op
// has for kernels, op by op in the order of the block. A number has one scalar
// whatever the shape of its tensor is, so broadcasts of numbers vanish.
#include "frontends/onnx/ScalarProgram.h"

#include "compiler/dialects/nn/ShapeOps.h"
#include "runtime/support/concat.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// A walk from results to operands with a stack of its own, since chains of ops
// may be long.
UpdateSlice frontend::sliceOf(UpdateArgument &parameter,
                              UpdateArguments &arguments) {
  UpdateSlice slice;
  slice.parameter = &parameter;
  llvm::DenseSet<Value> seen;
  SmallVector<Value> stack = {parameter.updated};
  for (size_t next = 0;;) {
    while (!stack.empty()) {
      Value value = stack.pop_back_val();
      if (!seen.insert(value).second)
        continue;
      if (Operation *op = value.getDefiningOp()) {
        slice.ops.push_back(op);
        // The first operand is looked at first.
        for (Value operand : llvm::reverse(op->getOperands()))
          stack.push_back(operand);
        continue;
      }
      UpdateArgument &argument = arguments.of(value);
      bool isState = argument.kind == UpdateArgument::state;
      if (&argument != &parameter)
        (isState ? slice.states : slice.others).push_back(&argument);
    }
    if (next == slice.states.size())
      break;
    stack.push_back(slice.states[next++]->updated);
  }
  llvm::sort(slice.ops,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return slice;
}

namespace {

class ProgramBuilder {
public:
  ProgramBuilder(const UpdateSlice &slice, UpdateArguments &arguments,
                 OpBuilder builder)
      : slice(slice), arguments(arguments), b(builder),
        loc(builder.getUnknownLoc()), f32(builder.getF32Type()),
        f64(builder.getF64Type()) {}

  FailureOr<std::string> print(ArrayRef<std::string> stateNames);

private:
  void addArguments(Block &body);
  Value numberOf(const UpdateArgument &argument);
  LogicalResult convert(Operation &op);
  Value constant(double value, Type type) {
    return arith::ConstantOp::create(b, loc, nn::scalarAttr(type, value));
  }
  // Returns a scalar that may meet elements.
  Value narrowed(Value scalar) {
    return scalar.getType().isF64()
               ? Value(arith::TruncFOp::create(b, loc, f32, scalar))
               : scalar;
  }
  bool isNumber(Value value) const {
    return !arguments.elements.contains(value);
  }

  const UpdateSlice &slice;
  UpdateArguments &arguments;
  OpBuilder b;
  Location loc;
  Type f32, f64;
  Value lr, step;
  llvm::DenseMap<Value, Value> scalars;
};

} // namespace

// A step counts from 1, and a number has its initial value in the first.
Value ProgramBuilder::numberOf(const UpdateArgument &argument) {
  Value number = argument.isRate ? lr : constant(argument.initial, f64);
  if (argument.change != (argument.multiplies ? 1 : 0)) {
    Value passed = arith::SubFOp::create(b, loc, step, constant(1, f64));
    Value change = constant(argument.change, f64);
    if (argument.multiplies)
      number = arith::MulFOp::create(
          b, loc, number, math::PowFOp::create(b, loc, change, passed));
    else
      number = arith::AddFOp::create(
          b, loc, number, arith::MulFOp::create(b, loc, change, passed));
  }
  Type element = elementOf(argument.value);
  if (isa<FloatType>(element))
    return number;
  return arith::FPToSIOp::create(
      b, loc, b.getIntegerType(element.getIntOrFloatBitWidth()), number);
}

// States are zero before the first step, so another value is put in there.
void ProgramBuilder::addArguments(Block &body) {
  auto add = [&](Type type, StringRef name) {
    return body.addArgument(type, NameLoc::get(b.getStringAttr(name), loc));
  };
  Value gradient;
  scalars[slice.parameter->value] = add(f32, "p");
  gradient = add(f32, "g");
  SmallVector<Value> states;
  for (size_t i = 0; i < slice.states.size(); ++i)
    states.push_back(add(f32, concat("s", i)));
  lr = add(f64, "lr");
  step = add(f64, "step");
  add(f64, "decay");
  for (auto [argument, state] : llvm::zip_equal(slice.states, states)) {
    if (argument->initial != 0) {
      Value isFirst = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ,
                                            step, constant(1, f64));
      state = arith::SelectOp::create(b, loc, isFirst,
                                      constant(argument->initial, f32), state);
    }
    scalars[argument->value] = state;
  }
  for (const UpdateArgument *argument : slice.others)
    scalars[argument->value] = argument->kind == UpdateArgument::gradient
                                   ? gradient
                                   : numberOf(*argument);
}

LogicalResult ProgramBuilder::convert(Operation &op) {
  auto refuse = [&](const Twine &why) {
    return emitError(op.getLoc())
           << "the update of '" << slice.parameter->tensor
           << "' is not pointwise: " << why
           << "; train with --optimizer, or write the update element by "
              "element";
  };
  Value result = op.getResult(0);
  if (isa<nn::ConstantOp>(op)) {
    std::optional<double> number = nn::matchSplat(result);
    if (!number)
      return refuse("a constant has other values for other elements");
    Type element = elementOf(result);
    bool isFloat = isa<FloatType>(element);
    scalars[result] = constant(
        *number,
        isFloat ? f64 : b.getIntegerType(element.getIntOrFloatBitWidth()));
    return success();
  }
  // One element may have another rank than the parameter.
  if ((isNumber(result) || tensorType(result).getNumElements() == 1) &&
      isa<nn::BroadcastOp, nn::ReshapeOp>(op)) {
    scalars[result] = scalars.lookup(op.getOperand(0));
    return success();
  }
  auto elementwise = dyn_cast<nn::ElementwiseOpInterface>(op);
  if (!elementwise)
    return refuse("'" + op.getName().getStringRef() + "' mixes elements");
  SmallVector<Value> operands;
  for (Value operand : op.getOperands()) {
    Value scalar = scalars.lookup(operand);
    operands.push_back(isNumber(result) ? scalar : narrowed(scalar));
  }
  Value made = elementwise.buildScalar(b, loc, operands);
  if (isNumber(result) && made.getType().isF32()) {
    // An integer becomes an f64 without a way through f32, which does not hold
    // steps above 2^24.
    if (auto *op = made.getDefiningOp();
        isa_and_nonnull<arith::SIToFPOp, arith::UIToFPOp>(op))
      made.setType(f64);
    else
      made = arith::ExtFOp::create(b, loc, f64, made);
  }
  scalars[result] = made;
  return success();
}

FailureOr<std::string> ProgramBuilder::print(ArrayRef<std::string> stateNames) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  b.setInsertionPointToStart(module->getBody());
  size_t states = slice.states.size();
  SmallVector<Type> inputs(2 + states, f32), results(1 + states, f32);
  inputs.append(3, f64);
  auto function = func::FuncOp::create(b, loc, "update",
                                       b.getFunctionType(inputs, results));
  for (auto [i, name] : llvm::enumerate(stateNames))
    function.setArgAttr(unsigned(2 + i), "fsdp.state", b.getStringAttr(name));
  Block &body = function.getBody().emplaceBlock();
  b.setInsertionPointToStart(&body);
  addArguments(body);
  for (Operation *op : slice.ops)
    if (failed(convert(*op)))
      return failure();
  SmallVector<Value> values = {
      narrowed(scalars.lookup(slice.parameter->updated))};
  for (const UpdateArgument *state : slice.states)
    values.push_back(narrowed(scalars.lookup(state->updated)));
  func::ReturnOp::create(b, loc, values);
  std::string text;
  llvm::raw_string_ostream stream(text);
  function.print(stream, OpPrintingFlags().printNameLocAsPrefix());
  return text + "\n";
}

FailureOr<std::string>
frontend::printScalarProgram(const UpdateSlice &slice,
                             UpdateArguments &arguments,
                             ArrayRef<std::string> stateNames) {
  MLIRContext *context = slice.parameter->value.getContext();
  context->loadDialect<arith::ArithDialect, math::MathDialect>();
  return ProgramBuilder(slice, arguments, OpBuilder(context)).print(stateNames);
}

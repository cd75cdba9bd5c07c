// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reverse-mode differentiation, op by op (Griewank and Walther, Evaluating
// Derivatives, 2008), with the activity analysis of Tapenade: only ops between
// a trainable parameter and the loss get an adjoint. Each op builds its own
// (AdjointOpInterface); this file decides the order and adds cotangents up.
#include "passes/grad/Differentiator.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;

namespace fsdpc::passes {

static bool isFloat(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
}

// Finds the values between trainable parameters and the loss, and counts for
// each how many active users must be differentiated before its gradient is
// complete.
void Differentiator::analyseActivity(Value loss) {
  SmallVector<fsdp::LoadOp> loads;
  // Forwards for what varies, backwards for what is useful: one scan each
  // suffices in a flat block.
  for (Operation &op : body) {
    bool reached = false;
    if (auto load = dyn_cast<fsdp::LoadOp>(op)) {
      auto parameter = symbols.lookupNearestSymbolFrom<fsdp::ParameterOp>(
          load, load.getSymbolAttr());
      reached = parameter && parameter.getTrainable();
      if (reached)
        loads.push_back(load);
    } else if (!isa<nn::StopGradientOp>(op)) {
      reached = llvm::any_of(op.getOperands(),
                             [&](Value v) { return varied.contains(v); });
    }
    for (Value result : op.getResults())
      if (reached && isFloat(result))
        varied.insert(result);
  }
  useful.insert(loss);
  for (Operation &op : llvm::reverse(body))
    if (!isa<nn::StopGradientOp>(op) &&
        llvm::any_of(op.getResults(),
                     [&](Value v) { return useful.contains(v); }))
      for (Value operand : op.getOperands())
        if (isFloat(operand))
          useful.insert(operand);
  // An op that reads a value twice gives it one gradient after the other in one
  // visit, so it counts once.
  for (Operation &op : body)
    if (isActive(&op))
      for (Value operand :
           SetVector<Value>(op.operand_begin(), op.operand_end()))
        ++pending[operand];
  for (fsdp::LoadOp load : loads)
    if (useful.contains(load.getResult())) {
      StringAttr name = load.getSymbolAttr().getAttr();
      active[name].push_back(load);
      ++pendingLoads[name];
    }
}

/// Adds a gradient of `of` to the sum of earlier ones; `sum` may be null. It is
/// added in the type of the value, where that is told, whoever read it. The
/// gradient of an embedding takes the sum as its accumulator, so that rows are
/// added into it and no table of zeros is made. That is possible only if the
/// sum exists before the rows are added and nothing else reads them.
Value Differentiator::addTo(Value sum, Value gradient, Value of) {
  if (!sum)
    return gradient;
  auto keepAs = [&](Operation *addition) {
    Operation *source = of.getDefiningOp();
    if (!source)
      return;
    for (StringRef name : {StringRef(fsdp::FSDPDialect::kKeepF32Attr),
                           StringRef(nn::NNDialect::kTypeAttr)})
      if (Attribute value = source->getAttr(name))
        addition->setAttr(name, value);
  };
  auto rows = gradient.getDefiningOp<nn::EmbeddingGradOp>();
  if (rows && !rows.getAccumulator() && rows->use_empty() &&
      sum.getDefiningOp()->isBeforeInBlock(rows)) {
    rows.getAccumulatorMutable().assign(sum);
    keepAs(rows);
    return gradient;
  }
  auto add = nn::AddOp::create(builder, gradient.getLoc(), sum, gradient);
  keepAs(add);
  return add;
}

void Differentiator::addGradient(Value value, Value gradient) {
  Value &sum = gradients[value];
  sum = addTo(sum, gradient, value);
}

/// Called when the gradient of a load is complete. The last load of a parameter
/// completes the sum over its loads, and emits fsdp.gradient.
void Differentiator::finishLoad(fsdp::LoadOp load) {
  StringAttr name = load.getSymbolAttr().getAttr();
  if (--pendingLoads[name])
    return;
  // The op fsdp.gradient and the additions belong to the backward of this load.
  mark.primal = load;
  Value sum;
  // Last load first, in the order in which their gradients are complete.
  for (fsdp::LoadOp each : llvm::reverse(active[name]))
    if (Value gradient = gradients.lookup(each.getResult()))
      sum = addTo(sum, gradient, each.getResult());
  if (!sum) // through floor or integers: zero everywhere
    sum = nn::splat(builder, load.getLoc(), load.getType(), 0);
  auto gradient = fsdp::GradientOp::create(builder, load.getLoc(),
                                           load.getSymbolAttr(), simplify(sum));
  auto parameter = symbols.lookupNearestSymbolFrom<fsdp::ParameterOp>(
      load, load.getSymbolAttr());
  // The gradient belongs to the owner of a tied parameter, whichever unit has
  // loaded it last.
  if (parameter.getUnitAttr())
    gradient->setAttr(fsdp::FSDPDialect::kUnitAttr, parameter.getUnitAttr());
}

// Builds the adjoint of one op, whose result gradients are complete, and adds
// the gradients of its operands to those of earlier uses.
LogicalResult Differentiator::buildAdjoint(Operation *op) {
  mark.primal = op;
  SmallVector<Value> resultGrads;
  // A missing gradient stays null, and the adjoint treats it as zero.
  for (Value result : op->getResults()) {
    Value gradient = gradients.lookup(result);
    resultGrads.push_back(gradient ? simplify(gradient) : gradient);
  }
  if (llvm::all_of(resultGrads, [](Value v) { return !v; }))
    return success();

  auto adjoint = dyn_cast<nn::AdjointOpInterface>(op);
  // An op without an adjoint is an error only here: it may stand anywhere off
  // the path from parameters to the loss.
  if (!adjoint)
    return op->emitOpError("has no adjoint, but a trainable parameter affects "
                           "the loss through it");
  // An adjoint builds nothing for operands that no parameter reaches.
  SmallVector<bool> needed;
  for (Value operand : op->getOperands())
    needed.push_back(varied.contains(operand));
  SmallVector<Value> operandGrads(op->getNumOperands());
  if (failed(adjoint.buildAdjoint(builder, resultGrads, needed, operandGrads)))
    return failure();
  ++adjoints;
  for (auto [operand, wanted, gradient] :
       llvm::zip(op->getOperands(), needed, operandGrads))
    if (wanted && gradient)
      addGradient(operand, gradient);
  return success();
}

/// Differentiates `op` and counts it as done with its operands. An op on
/// weights only follows as soon as its last user is done, so that gradients of
/// parameters do not wait for the place where the parameter was loaded. Such
/// ops may be a long chain, hence the stack: of the operands that are left, per
/// op, the next one last.
LogicalResult Differentiator::differentiate(Operation *op) {
  SmallVector<SmallVector<Value>> stack;
  auto begin = [&](Operation *next) {
    SetVector<Value> operands(next->operand_begin(), next->operand_end());
    SmallVector<Value> left = operands.takeVector();
    std::reverse(left.begin(), left.end());
    stack.push_back(std::move(left));
    return buildAdjoint(next);
  };
  if (failed(begin(op)))
    return failure();
  // Explicit stack instead of recursion; each entry is an op whose adjoint is
  // built and whose operands are yet to be counted.
  while (!stack.empty()) {
    if (stack.back().empty()) {
      stack.pop_back();
      continue;
    }
    Value operand = stack.back().pop_back_val();
    // The gradient of the operand is complete when its last active user is
    // done.
    if (--pending[operand] || !varied.contains(operand) ||
        !useful.contains(operand))
      continue;
    // Only ops on weights follow at once. Others wait for their turn in the
    // sweep, which keeps the backward in reverse program order.
    Operation *source = operand.getDefiningOp();
    if (auto load = dyn_cast<fsdp::LoadOp>(source))
      finishLoad(load);
    else if (isWeightOnly(source) &&
             llvm::none_of(source->getResults(),
                           [&](Value v) { return pending.lookup(v) != 0; }) &&
             failed(begin(source)))
      return failure();
  }
  return success();
}

// Returns the gradient of the loss: 1, or the scale of the step. A loss that
// computes its gradients in the forward must take the scale there, or they
// would be rounded to f16 before they are scaled.
Value Differentiator::makeSeed(fsdp::ReportLossOp report, bool scalesLoss) {
  auto type = nn::tensorType(report.getLoss());
  if (!scalesLoss)
    return nn::splat(builder, report.getLoc(), type, 1);
  Operation *first = report;
  // The scale stands before the first of them, or before the report if there
  // are none.
  SmallVector<nn::LinearCrossEntropyOp> losses;
  for (Operation &op : body)
    if (auto loss = dyn_cast<nn::LinearCrossEntropyOp>(op)) {
      first = losses.empty() ? &op : first;
      losses.push_back(loss);
    }
  OpBuilder forward(first);
  auto f32 = RankedTensorType::get({}, forward.getF32Type());
  auto scale = fsdp::LossScaleOp::create(forward, report.getLoc(), f32);
  if (Attribute unit = first->getAttr(fsdp::FSDPDialect::kUnitAttr))
    scale->setAttr(fsdp::FSDPDialect::kUnitAttr, unit);
  for (nn::LinearCrossEntropyOp loss : losses) {
    if (loss.getLoss().getType() != f32)
      continue;
    // The factor of its mean is there already.
    Value both = scale;
    if (Value factor = loss.getScale()) {
      OpBuilder before(loss);
      both = nn::MulOp::create(before, loss.getLoc(), scale, factor);
      if (Attribute unit = loss->getAttr(fsdp::FSDPDialect::kUnitAttr))
        both.getDefiningOp()->setAttr(fsdp::FSDPDialect::kUnitAttr, unit);
    }
    loss.getScaleMutable().assign(both);
  }
  Value seed =
      nn::castTo(builder, report.getLoc(), scale, type.getElementType());
  return nn::reshapeTo(builder, report.getLoc(), seed, type.getShape());
}

// Sweeps from the last op to the first, starting with the gradient of the loss,
// and erases adjoints that turned out to be unused.
LogicalResult Differentiator::run(fsdp::ReportLossOp report, bool scalesLoss) {
  Value loss = report.getLoss();
  if (nn::tensorType(loss).getNumElements() != 1)
    return report.emitOpError("loss must have one element, but has type ")
           << loss.getType();
  SmallVector<Operation *> forward;
  for (Operation &op : body.without_terminator())
    forward.push_back(&op);
  analyseActivity(loss);
  if (active.empty())
    return report.emitOpError(
        "depends on no trainable parameter, so there is nothing to train");

  mark.primal = report;
  // All ops after it belong to the backward.
  Operation *last = body.getTerminator()->getPrevNode();
  gradients[loss] = makeSeed(report, scalesLoss);
  // The loss may be a parameter itself, which no op of the sweep would finish.
  if (auto load = loss.getDefiningOp<fsdp::LoadOp>())
    finishLoad(load);
  for (Operation *op : llvm::reverse(forward)) {
    // Ops on weights only are visited by differentiate(), after their last
    // user.
    bool isLoss = op == loss.getDefiningOp();
    if (isActive(op) && (isLoss || !isWeightOnly(op)) &&
        failed(differentiate(op)))
      return failure();
  }
  // Adjoints may build gradients that nobody reads, such as those of operands
  // that turned out to be inactive.
  SmallVector<Operation *> backward;
  for (Operation *op = last->getNextNode(); op; op = op->getNextNode())
    backward.push_back(op);
  for (Operation *op : llvm::reverse(backward))
    if (isOpTriviallyDead(op))
      op->erase();
  return success();
}

} // namespace fsdpc::passes

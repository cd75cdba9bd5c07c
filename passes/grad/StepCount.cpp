// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops between the count and its reader are copied, since other readers want
// the microbatch's own. Without a bound, count / factor is the step's divisor
// over the number of microbatches, and so has the sign of the step's count.
#include "passes/grad/StepCount.h"

#include "compiler/dialects/nn/Build.h"

using namespace mlir;

namespace fsdpc::passes {

StepCount::StepCount(const WeightedMean &mean, Value factor,
                     const SampleFlow &flow, OpBuilder &builder)
    : mean(mean), factor(factor), flow(flow), builder(builder) {}

static Value compare(OpBuilder &builder, Location loc, nn::Predicate predicate,
                     Value value, double number) {
  RankedTensorType type = nn::tensorType(value);
  return nn::CmpOp::create(builder, loc, type.clone(builder.getI1Type()),
                           predicate, value,
                           nn::splat(builder, loc, type, number));
}

Value StepCount::guarded(Value count) {
  Location loc = count.getLoc();
  Value none = compare(builder, loc, nn::Predicate::eq, count, 0);
  Value one = nn::splat(builder, loc, nn::tensorType(count), 1);
  return nn::SelectOp::create(builder, loc, count.getType(), none, one, count);
}

// The sums of a cross-entropy's weights are not in the program.
Value StepCount::test(const Presence &presence, Value of) {
  Location loc = of.getLoc();
  RankedTensorType type = nn::tensorType(of);
  Value holds;
  if (mean.count.isBounded()) {
    auto truth = RankedTensorType::get({}, builder.getI1Type());
    holds = nn::splat(builder, loc, truth, 1);
  } else if (presence.ofSign && mean.count.weight) {
    Value count = nn::castTo(builder, loc, guarded(mean.count.weight),
                             builder.getF32Type());
    Value sign =
        nn::MulOp::create(builder, loc, factor.getType(),
                          nn::reshapeTo(builder, loc, count, {}), factor);
    holds = compare(builder, loc, nn::Predicate::gt, sign, 0);
  } else {
    holds = compare(builder, loc, nn::Predicate::ne, factor, 0);
  }
  if (!presence.ifAny)
    holds = nn::NotOp::create(builder, loc, holds.getType(), holds);
  holds = nn::castTo(builder, loc, holds, type.getElementType());
  SmallVector<int64_t> ones(type.getRank(), 1);
  holds = nn::reshapeTo(builder, loc, holds, ones);
  return nn::broadcastTo(builder, loc, holds, type.getShape());
}

Value StepCount::copy(Value value) {
  if (!flow.readsInputs(value))
    return value;
  if (Value known = copies.lookup(value))
    return known;
  if (mean.count.weight && flow.firstOf(value) == mean.count.weight)
    return copies[value] = mean.count.isBounded() ? value : guarded(value);
  if (auto presence = presenceOf(value, flow))
    return copies[value] = test(*presence, value);
  Operation *op = value.getDefiningOp();
  SmallVector<Value> operands =
      llvm::map_to_vector(op->getOperands(), [&](Value x) { return copy(x); });
  if (llvm::equal(operands, op->getOperands()))
    return value;
  Operation *clone = builder.clone(*op);
  clone->setOperands(operands);
  return copies[value] = clone->getResult(0);
}

void StepCount::replace(OpOperand &use) {
  builder.setInsertionPoint(use.getOwner());
  copies.clear();
  use.set(copy(use.get()));
}

} // namespace fsdpc::passes

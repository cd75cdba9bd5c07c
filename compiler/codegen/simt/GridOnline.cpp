// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The maximum of a long row and the sum of exp(x - maximum) in one loop over
// it (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018).
// A thread scales its running sum whenever its running maximum grows.
#include "compiler/codegen/simt/GridEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;

// The difference of two maxima of -inf would be NaN, and one of them begins as
// -inf. Exponentials are therefore of differences to a finite number, until the
// row's maximum is known.
Value GridEmitter::aboveInfinity(Value maximum) {
  auto type = cast<FloatType>(maximum.getType());
  APFloat least = APFloat::getLargest(type.getFloatSemantics(),
                                      /*Negative=*/true);
  return make<arith::MaximumFOp>(
      maximum, make<arith::ConstantOp>(builder.getFloatAttr(type, least)));
}

// Returns exp(from - to) of two running maxima: the factor of a sum that was
// taken relative to `from`.
Value GridEmitter::rescaling(Value from, Value to) {
  return make<math::ExpOp>(
      make<arith::SubFOp>(aboveInfinity(from), aboveInfinity(to)));
}

// Carries the running maximum, a scalar, and the running sums, one per lane.
GridEmitter::Values GridEmitter::onlineStep(Root &most, Root &sum,
                                            ValueRange carried) {
  kernels::Lanes value = element(most.value, most.index);
  insertAt(2);
  Value lanes = foldLanes(most.reduce, spread(value.value));
  Value maximum = combine(most.reduce, carried[0], lanes);
  // The summed value reads the maximum so far where the kernel's body reads
  // that of the row.
  reduced[most.reduce.getResult()] = {aboveInfinity(maximum), 2};
  kernels::Lanes exps = element(sum.value, sum.index);
  reduced.erase(most.reduce.getResult());
  insertAt(2);
  Value scaled =
      make<arith::MulFOp>(carried[1], spread(rescaling(carried[0], maximum)));
  return {maximum, combine(sum.reduce, scaled, spread(exps.value))};
}

// Emits both stages as one loop. The threads of the team agree on the maximum
// first, and then add up sums that are all relative to it.
void GridEmitter::emitOnline(size_t number) {
  Stage &stage = plan.stages[number];
  Root most = stage.roots.front(), sum = plan.stages[number + 1].roots.front();
  width = grid.widths[number];
  insertAt(0);
  Type type = kernels::scalarType(nn::tensorType(most.value).getElementType());
  Value begin[] = {neutral(most.reduce, type),
                   neutral(sum.reduce, lanesOf(type, width > 1))};
  // Both roots at the indices of the first stage's loop.
  sum.index = most.index;
  Values results = overVectors(stage, begin, [&](ValueRange carried) {
    return onlineStep(most, sum, carried);
  });
  width = 1;
  insertAt(0);
  Value maximum = agree(most.reduce, results[0]);
  Value total = foldLanes(sum.reduce, results[1]);
  total = agree(sum.reduce,
                make<arith::MulFOp>(total, rescaling(results[0], maximum)));
  // A row of -inf alone has a sum of NaN, as in two loops.
  total = make<arith::AddFOp>(total, make<arith::SubFOp>(maximum, maximum));
  reduced[most.reduce.getResult()] = {roundResult(most.reduce, maximum), 0};
  reduced[sum.reduce.getResult()] = {roundResult(sum.reduce, total), 0};
  if (grid.team <= kWarp)
    threads.synchronize(grid.team);
}

// Combines a value of each thread of the row's team.
Value GridEmitter::agree(nn::ReduceOp op, Value value) {
  if (grid.team == 1)
    return value;
  int64_t bytes = threads.sharedFor(1, grid.team);
  Value shared = bytes ? threads.share(bytes) : Value();
  return threads
      .reduce(value, grid.team, shared,
              [&](size_t, Value a, Value b) { return combine(op, a, b); })
      .front();
}

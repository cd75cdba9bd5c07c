// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts that several optimizers share. Each follows one method of
// torch.Tensor in the order of its roundings.
#include "passes/shard/optimizers/Scalars.h"

using namespace mlir;

namespace fsdpc::passes {

// Two comparisons, since NaN belongs to none of the three.
Value Scalars::choose(Value x, Value below, Value at, Value above) {
  Value nothing = element(0, "zero");
  Value isPositive = isAbove(x, nothing);
  Value isNegative = isAbove(nothing, x);
  Value other = select(isNegative, below, at);
  return select(isPositive, above, other);
}

Value Scalars::sign(Value x) {
  Value below = element(-1, "minus one");
  Value at = element(0, "zero");
  return choose(x, below, at, element(1, "one"));
}

// Tensor.lerp_ starts from the nearer end.
Value Scalars::average(Value old, Value value, Value one, Value beta,
                       double number) {
  Value step = sub(value, old);
  // Decided at compile time, where beta is known.
  if (1 - number < 0.5) {
    Value weight = toElement(sub(one, beta));
    return add(old, mul(weight, step));
  }
  Value weight = toElement(beta);
  return sub(value, mul(step, weight));
}

Value Scalars::averageSquare(Value old, Value value, Value one, Value beta) {
  // (1 - beta) value first, then times value, as addcmul_ does.
  Value kept = mul(old, toElement(beta));
  Value added = mul(mul(toElement(sub(one, beta)), value), value);
  return add(kept, added);
}

void Arguments::decayGradient(Scalars s) {
  Value factor = s.toElement(decay);
  gradient = s.add(gradient, s.mul(factor, parameter));
}

void Arguments::decayParameter(Scalars s, Value one) {
  Value shrink = s.toElement(s.sub(one, s.mul(lr, decay)));
  parameter = s.mul(parameter, shrink);
}

} // namespace fsdpc::passes

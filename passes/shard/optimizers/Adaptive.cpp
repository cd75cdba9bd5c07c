// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adadelta, Adagrad and RMSprop, after the single-tensor forms of
// torch/optim/adadelta.py, adagrad.py and rmsprop.py. They divide the gradient
// by the root of an average or a sum of its squares.
#include "passes/shard/optimizers/Programs.h"

using namespace mlir;

namespace fsdpc::passes {

// Adadelta (Zeiler, 2012) needs no scale of its own: the root of the average of
// squared changes takes the place of a learning rate, which torch multiplies
// on.
static Results buildAdadelta(const fsdp::CompileOptions &options, Scalars s,
                             Arguments in) {
  Value one = s.number(1, "one");
  Value rho = s.number(options.rho, "rho");
  Value eps = s.element(options.eps(), "eps");
  in.decayGradient(s);
  Value squares = s.averageSquare(in.states[0], in.gradient, one, rho);
  Value deviation = s.sqrt(s.add(squares, eps));
  Value size = s.sqrt(s.add(in.states[1], eps));
  Value delta = s.mul(s.div(size, deviation), in.gradient);
  Value changes = s.averageSquare(in.states[1], delta, one, rho);
  Value rate = s.toElement(s.neg(in.lr));
  Value p = s.add(in.parameter, s.mul(rate, delta));
  return {p, squares, changes};
}

// The states begin at zero, so an initial sum is put in at the first step.
static Results buildAdagrad(const fsdp::CompileOptions &options, Scalars s,
                            Arguments in) {
  Value one = s.number(1, "one");
  Value eps = s.element(options.eps(), "eps");
  in.decayGradient(s);
  Value passed = s.sub(in.step, one);
  Value slowed = s.mul(passed, s.number(options.lrDecay, "lr_decay"));
  Value rate = s.div(in.lr, s.add(one, slowed));
  Value sum = in.states[0];
  if (options.initialAccumulator != 0) {
    Value first =
        s.element(options.initialAccumulator, "initial_accumulator_value");
    sum = s.select(s.equal(in.step, one), first, sum);
  }
  sum = s.add(sum, s.mul(in.gradient, in.gradient));
  Value deviation = s.add(s.sqrt(sum), eps);
  Value factor = s.toElement(s.neg(rate));
  Value change = s.div(s.mul(factor, in.gradient), deviation);
  Value p = s.add(in.parameter, change);
  return {p, sum};
}

// Centered, it subtracts the square of the average gradient, which makes the
// average of squares a variance.
static Results buildRMSprop(const fsdp::CompileOptions &options, Scalars s,
                            Arguments in) {
  Value one = s.number(1, "one");
  Value alpha = s.number(options.alpha(), "alpha");
  Value eps = s.element(options.eps(), "eps");
  in.decayGradient(s);
  Value squares = s.averageSquare(in.states[0], in.gradient, one, alpha);
  Results states = {squares};
  Value variance = squares;
  if (options.centered) {
    Value mean =
        s.average(in.states[1], in.gradient, one, alpha, options.alpha());
    states.push_back(mean);
    variance = s.sub(squares, s.mul(mean, mean));
  }
  Value deviation = s.add(s.sqrt(variance), eps);
  Value rate = s.toElement(s.neg(in.lr));
  Value change;
  // The momentum is of the scaled gradients.
  if (options.momentum() != 0) {
    Value momentum = s.element(options.momentum(), "momentum");
    Value kept = s.mul(in.states.back(), momentum);
    Value buffer = s.add(kept, s.div(in.gradient, deviation));
    states.push_back(buffer);
    change = s.mul(rate, buffer);
  } else {
    change = s.div(s.mul(rate, in.gradient), deviation);
  }
  Results results = {s.add(in.parameter, change)};
  results.append(states);
  return results;
}

ArrayRef<Program> adaptivePrograms() {
  static constexpr Program programs[] = {
      {"adadelta", buildAdadelta},
      {"adagrad", buildAdagrad},
      {"rmsprop", buildRMSprop},
  };
  return programs;
}

} // namespace fsdpc::passes

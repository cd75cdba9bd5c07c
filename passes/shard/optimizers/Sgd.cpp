// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// SGD and averaged SGD, after torch/optim/sgd.py and asgd.py, and the two that
// use only the sign of a gradient: Rprop (torch/optim/rprop.py) and Lion (Chen
// et al., Symbolic Discovery of Optimization Algorithms, 2023).
#include "passes/shard/optimizers/Programs.h"

using namespace mlir;

namespace fsdpc::passes {

// SGD, with optional momentum and Nesterov momentum.
static Results buildSGD(const fsdp::CompileOptions &options, Scalars s,
                        Arguments in) {
  in.decayGradient(s);
  Value g = in.gradient;
  Results states;
  if (!in.states.empty()) {
    Value momentum = s.element(options.momentum(), "momentum");
    Value added = g;
    if (options.dampening != 0) {
      // The buffer of the first step is the gradient, without dampening.
      Value one = s.number(1, "one");
      Value rest = s.sub(one, s.number(options.dampening, "dampening"));
      Value weight = s.select(s.equal(in.step, one), one, rest);
      added = s.mul(s.toElement(weight), g);
    }
    // States start at zero, so nothing else is special about the first step.
    Value buffer = s.add(s.mul(in.states[0], momentum), added);
    states = {buffer};
    g = options.nesterov ? s.add(g, s.mul(momentum, buffer)) : buffer;
  }
  Value rate = s.toElement(s.neg(in.lr));
  Results results = {s.add(in.parameter, s.mul(rate, g))};
  results.append(states);
  return results;
}

// torch computes eta and mu at the end of a step for the next one and keeps
// them in f32. Here they are functions of the step before, at the rate of this
// step; with a schedule torch is one step behind.
static Results buildASGD(const fsdp::CompileOptions &options, Scalars s,
                         Arguments in) {
  Value one = s.number(1, "one");
  Value lambd = s.number(options.lambd, "lambd");
  in.decayGradient(s);
  Value passed = s.sub(in.step, one);
  Value slowed = s.mul(s.mul(lambd, in.lr), passed);
  Value base = s.add(one, slowed);
  Value power = s.pow(base, s.number(options.alpha(), "alpha"));
  // eta = lr / (1 + lambd lr t)^alpha, with t the steps before this one; mu = 1
  // / max(1, t - t0).
  Value eta = s.toElement(s.div(in.lr, power));
  Value shrink = s.mul(lambd, s.toNumber(eta));
  Value p = s.mul(in.parameter, s.toElement(s.sub(one, shrink)));
  p = s.add(p, s.mul(s.neg(eta), in.gradient));

  // The average is the parameter up to step t0.
  Value averaged = s.sub(passed, s.number(options.t0, "t0"));
  Value mu = s.div(one, s.max(one, averaged));
  Value step = s.mul(s.sub(p, in.states[0]), s.toElement(mu));
  Value average = s.add(in.states[0], step);
  // As torch copies the parameter then: the sum above may differ from it in the
  // last bit.
  Value isFirst = s.equal(mu, one);
  average = s.select(isFirst, p, average);
  return {p, average};
}

// Each element has a step size, which grows while the sign of its gradient
// stays and shrinks when it turns; then the gradient counts as 0.
static Results buildRprop(const fsdp::CompileOptions &options, Scalars s,
                          Arguments in) {
  Value first = s.equal(in.step, s.number(1, "one"));
  Value size = s.select(first, s.toElement(in.lr), in.states[1]);
  Value product = s.mul(in.gradient, in.states[0]);
  Value shrink = s.element(options.etas.first, "etaminus");
  Value grow = s.element(options.etas.second, "etaplus");
  Value factor = s.choose(product, shrink, s.element(1, "one"), grow);
  Value least = s.element(options.stepSizes.first, "step_size_min");
  Value most = s.element(options.stepSizes.second, "step_size_max");
  size = s.min(s.max(s.mul(size, factor), least), most);
  Value nothing = s.element(0, "zero");
  // The stored gradient is 0 too, so that the next step neither grows nor
  // shrinks.
  Value turned = s.isAbove(nothing, product);
  Value g = s.select(turned, nothing, in.gradient);
  Value p = s.sub(in.parameter, s.mul(s.sign(g), size));
  return {p, g, size};
}

// The sign of an average of gradient and momentum. The momentum that is kept is
// a slower average.
static Results buildLion(const fsdp::CompileOptions &options, Scalars s,
                         Arguments in) {
  fsdp::NumberPair betas = options.betas();
  Value one = s.number(1, "one");
  Value beta1 = s.number(betas.first, "beta1");
  Value beta2 = s.number(betas.second, "beta2");
  in.decayParameter(s, one);
  auto mix = [&](Value beta) {
    Value kept = s.mul(in.states[0], s.toElement(beta));
    Value weight = s.toElement(s.sub(one, beta));
    return s.add(kept, s.mul(weight, in.gradient));
  };
  Value direction = s.sign(mix(beta1));
  Value rate = s.toElement(s.neg(in.lr));
  Value p = s.add(in.parameter, s.mul(rate, direction));
  return {p, mix(beta2)};
}

ArrayRef<Program> sgdPrograms() {
  static constexpr Program programs[] = {
      {"sgd", buildSGD},
      {"asgd", buildASGD},
      {"rprop", buildRprop},
      {"lion", buildLion},
  };
  return programs;
}

} // namespace fsdpc::passes

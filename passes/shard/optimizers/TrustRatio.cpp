// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LARS (You et al., Large Batch Training of Convolutional Networks, 2017) and
// LAMB (You et al., Large Batch Optimization for Deep Learning: Training BERT
// in 76 minutes, 2020). Both scale the update of a parameter by a ratio of
// norms over all of its elements, whose squares fsdp.member_sums sums in f64.
// The ratio is the same for all elements of a parameter and is computed in f64.
#include "passes/shard/optimizers/Moments.h"
#include "passes/shard/optimizers/Programs.h"

using namespace mlir;

namespace fsdpc::passes {
namespace {

// Returns x / y, or 1 where one of `norms` is 0. A parameter of zeros or
// without a gradient keeps the plain learning rate.
Value ratioOf(Scalars s, Value x, Value y, ValueRange norms) {
  Value one = s.number(1, "ratio_of_none");
  Value none = s.number(0, "none");
  Value ratio = s.div(x, y);
  for (Value norm : norms) {
    Value isNone = s.equal(norm, none);
    ratio = s.select(isNone, one, ratio);
  }
  return ratio;
}

// The change of a parameter by LAMB, before the ratio and the learning rate:
// the bias-corrected step of Adam, with eps outside the root, and the decay.
struct LAMBStep {
  Value update, average, averageSquare;
};

LAMBStep lambStep(const fsdp::CompileOptions &options, Scalars s,
                  Arguments in) {
  AdamMoments moments(options, s);
  Value eps = s.element(options.eps(), "eps");
  moments.update(s, in);
  // Rounded before they divide, unlike in Adam.
  Value correction1 = s.toElement(moments.correction1(s, in.step));
  Value correction2 = s.toElement(moments.correction2(s, in.step));
  Value numerator = s.div(moments.average, correction1);
  Value root = s.sqrt(s.div(moments.averageSquare, correction2));
  Value step = s.div(numerator, s.add(root, eps));
  Value factor = s.toElement(in.decay);
  Value update = s.add(step, s.mul(factor, in.parameter));
  return {update, moments.average, moments.averageSquare};
}

} // namespace

static Results buildLAMBSums(const fsdp::CompileOptions &options, Scalars s,
                             Arguments in) {
  Value update = lambStep(options, s, in).update;
  Value ofParameter = s.squareOf(in.parameter);
  return {ofParameter, s.squareOf(update)};
}

// The update is computed again rather than kept: it needs no memory, and both
// programs round alike.
static Results buildLAMB(const fsdp::CompileOptions &options, Scalars s,
                         Arguments in) {
  LAMBStep step = lambStep(options, s, in);
  Value norm = s.sqrt(in.sums[0]);
  Value ofUpdate = s.sqrt(in.sums[1]);
  Value ratio = ratioOf(s, norm, ofUpdate, {norm, ofUpdate});
  Value rate = s.toElement(s.neg(s.mul(in.lr, ratio)));
  Value p = s.add(in.parameter, s.mul(rate, step.update));
  return {p, step.average, step.averageSquare};
}

static Results buildLARSSums(const fsdp::CompileOptions &, Scalars s,
                             Arguments in) {
  Value ofParameter = s.squareOf(in.parameter);
  return {ofParameter, s.squareOf(in.gradient)};
}

// The ratio is a learning rate of the parameter's own, so the momentum is of
// steps and not of gradients.
static Results buildLARS(const fsdp::CompileOptions &options, Scalars s,
                         Arguments in) {
  Value trust = s.number(options.trust, "trust");
  Value eps = s.number(options.eps(), "eps");
  Value norm = s.sqrt(in.sums[0]);
  Value ofGradient = s.sqrt(in.sums[1]);
  Value decayed = s.add(ofGradient, s.mul(in.decay, norm));
  // trust |p| / (|g| + decay |p| + eps).
  Value ratio =
      ratioOf(s, s.mul(trust, norm), s.add(decayed, eps), {norm, ofGradient});
  in.decayGradient(s);
  Value step = s.mul(s.toElement(ratio), in.gradient);
  Results states;
  if (!in.states.empty()) {
    Value momentum = s.element(options.momentum(), "momentum");
    step = s.add(s.mul(in.states[0], momentum), step);
    states = {step};
  }
  Value rate = s.toElement(s.neg(in.lr));
  Results results = {s.add(in.parameter, s.mul(rate, step))};
  results.append(states);
  return results;
}

ArrayRef<Program> trustRatioPrograms() {
  static constexpr Program programs[] = {
      {"lamb", buildLAMB, buildLAMBSums},
      {"lars", buildLARS, buildLARSSums},
  };
  return programs;
}

} // namespace fsdpc::passes

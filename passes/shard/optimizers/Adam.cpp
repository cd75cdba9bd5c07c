// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adam, AdamW (with AMSGrad on demand), Adamax, NAdam and RAdam, after the
// single-tensor forms of torch/optim/adam.py, adamax.py, nadam.py and radam.py.
// All keep an average of the gradient and one of its size.
#include "passes/shard/optimizers/Moments.h"
#include "passes/shard/optimizers/Programs.h"

#include <cmath>

using namespace mlir;

namespace fsdpc::passes {

// AdamW shrinks the parameter directly, Adam adds the decay to the gradient. p
// -= lr / c1 · m / (sqrt(v) / sqrt(c2) + eps), with the averages m and v and
// their bias corrections c1 and c2.
static Results buildAdam(const fsdp::CompileOptions &options, Scalars s,
                         Arguments in) {
  AdamMoments moments(options, s);
  Value eps = s.element(options.eps(), "eps");
  if (options.optimizer.info->decouplesDecay || options.decoupledWeightDecay)
    in.decayParameter(s, moments.one);
  else
    in.decayGradient(s);

  moments.update(s, in);
  Value m = moments.average, v = moments.averageSquare;
  Results states = {m, v};
  // AMSGrad (Reddi et al., 2018) divides by the largest average so far.
  if (options.amsgrad)
    states.push_back(s.max(in.states[2], v));

  // The bias corrections 1 - beta^step.
  Value correction1 = moments.correction1(s, in.step);
  Value correction2 = s.sqrt(moments.correction2(s, in.step));
  // torch takes the root of v and divides it by the root of c2, rather than the
  // root of v / c2, which rounds otherwise.
  Value scale = s.toElement(correction2);
  Value root = s.div(s.sqrt(states.back()), scale);
  Value denominator = s.add(root, eps);
  Value rate = s.toElement(s.neg(s.div(in.lr, correction1)));
  Value change = s.div(s.mul(rate, m), denominator);
  Results results = {s.add(in.parameter, change)};
  results.append(states);
  return results;
}

// The second state is a decaying maximum instead of an average of squares. The
// state decays and takes the gradient where that is larger, as an infinity
// norm: u = max(beta2 u, |g| + eps).
static Results buildAdamax(const fsdp::CompileOptions &options, Scalars s,
                           Arguments in) {
  fsdp::NumberPair betas = options.betas();
  Value one = s.number(1, "one");
  Value beta1 = s.number(betas.first, "beta1");
  Value beta2 = s.element(betas.second, "beta2");
  Value eps = s.element(options.eps(), "eps");
  in.decayGradient(s);
  Value m = s.average(in.states[0], in.gradient, one, beta1, betas.first);
  Value kept = s.mul(in.states[1], beta2);
  Value size = s.add(s.abs(in.gradient), eps);
  Value largest = s.max(kept, size);
  Value correction = s.sub(one, s.pow(beta1, in.step));
  Value rate = s.toElement(s.neg(s.div(in.lr, correction)));
  Value change = s.div(s.mul(rate, m), largest);
  Value p = s.add(in.parameter, change);
  return {p, m, largest};
}

// NAdam's momentum grows from beta1 / 2 to beta1: mu(i) = beta1 (1 - q^i / 2)
// with q = 0.96^decay. The product of mu(1) … mu(t), which torch keeps as a
// state, is a function of t. With x = q^t,
//
//   -log Π (1 - q^i / 2) = Σ_k 2^-k / k Σ_i q^ik
//                        = (1 - x) / (1 - q) Σ_k w(k) (1 + x + … + x^(k-1))
//
// where w(k) = 2^-k / k · q^k / (1 + q + … + q^(k-1)). The inner sum is a
// polynomial in x with positive coefficients; the first 32 terms leave a
// relative error below 1e-11.
static Value productOfMomenta(Scalars s, Value step, Value beta1,
                              double decay) {
  constexpr int terms = 32;
  // log q.
  double exponent = decay * std::log(0.96), q = std::exp(exponent);
  // The coefficient of x^j is Σ_{k > j} w(k).
  double coefficients[terms] = {}, power = 1, sum = 0;
  for (int k = 1; k <= terms; ++k) {
    sum += power; // 1 + q + … + q^(k-1)
    power *= q;
    double weight = std::ldexp(power / sum, -k) / k;
    for (int j = 0; j < k; ++j)
      coefficients[j] += weight;
  }
  Value scaled = s.mul(step, s.number(exponent, "log q"));
  Value x = s.exp(scaled);
  // Horner's scheme. All terms are positive, so nothing cancels.
  Value series = s.number(coefficients[terms - 1], "coefficient");
  for (int j = terms - 2; j >= 0; --j) {
    Value product = s.mul(series, x);
    series = s.add(product, s.number(coefficients[j], "coefficient"));
  }
  // (1 - x) / (1 - q) is the number of steps if the momentum is constant. The
  // limit for q = 1, that is without decay.
  Value length = step;
  if (exponent != 0) {
    // expm1, since 1 - q^t would cancel for q near 1.
    Value rest = s.expm1(scaled);
    length = s.div(rest, s.number(std::expm1(exponent), "q - 1"));
  }
  Value shares = s.exp(s.neg(s.mul(length, series)));
  return s.mul(s.pow(beta1, step), shares);
}

// The momentum of a step: beta1 (1 - 0.96^(step · decay) / 2).
static Value momentumOf(Scalars s, Value step, Value one, Value beta1,
                        double decay) {
  Value exponent = s.mul(step, s.number(decay, "momentum_decay"));
  Value power = s.pow(s.number(0.96, "base"), exponent);
  Value half = s.mul(power, s.number(0.5, "half"));
  return s.mul(beta1, s.sub(one, half));
}

static Results buildNAdam(const fsdp::CompileOptions &options, Scalars s,
                          Arguments in) {
  AdamMoments moments(options, s);
  Value one = moments.one, beta1 = moments.beta1;
  Value eps = s.element(options.eps(), "eps");
  if (options.decoupledWeightDecay)
    in.decayParameter(s, one);
  else
    in.decayGradient(s);

  double decay = options.momentumDecay;
  Value mu = momentumOf(s, in.step, one, beta1, decay);
  Value nextStep = s.add(in.step, one);
  Value nextMu = momentumOf(s, nextStep, one, beta1, decay);
  Value product = productOfMomenta(s, in.step, beta1, decay);
  // torch's mu_product of this step, and of the next one.
  Value nextProduct = s.mul(product, nextMu);

  moments.update(s, in);
  Value m = moments.average, v = moments.averageSquare;
  Value correction = s.toElement(moments.correction2(s, in.step));
  Value denominator = s.add(s.sqrt(s.div(v, correction)), eps);

  Value rate = s.neg(in.lr);
  // The step is a mix of the gradient and of the average, each with a bias
  // correction of its own.
  Value share = s.mul(rate, s.sub(one, mu));
  Value ofGradient = s.toElement(s.div(share, s.sub(one, product)));
  Value change = s.div(s.mul(ofGradient, in.gradient), denominator);
  Value p = s.add(in.parameter, change);
  Value nextShare = s.mul(rate, nextMu);
  Value ofAverage = s.toElement(s.div(nextShare, s.sub(one, nextProduct)));
  change = s.div(s.mul(ofAverage, m), denominator);
  p = s.add(p, change);
  return {p, m, v};
}

// RAdam divides by the second average only when its variance is tractable.
static Results buildRAdam(const fsdp::CompileOptions &options, Scalars s,
                          Arguments in) {
  fsdp::NumberPair betas = options.betas();
  Value one = s.number(1, "one"), two = s.number(2, "two"),
        four = s.number(4, "four");
  Value beta1 = s.number(betas.first, "beta1");
  Value beta2 = s.number(betas.second, "beta2");
  Value eps = s.element(options.eps(), "eps");
  if (options.decoupledWeightDecay)
    in.decayParameter(s, one);
  else
    in.decayGradient(s);

  Value m = s.average(in.states[0], in.gradient, one, beta1, betas.first);
  Value v = s.averageSquare(in.states[1], in.gradient, one, beta2);
  Value correction1 = s.sub(one, s.pow(beta1, in.step));
  Value power2 = s.pow(beta2, in.step);
  Value correction2 = s.sub(one, power2);

  // The length of the average that v is, and the rectification. rho_inf = 2 /
  // (1 - beta2) - 1 of the paper (Liu et al., 2020), rho_t = rho_inf - 2 t
  // beta2^t / (1 - beta2^t), and r_t² = (rho_t - 4) (rho_t - 2) rho_inf /
  // ((rho_inf - 4) (rho_inf - 2) rho_t).
  Value longest = s.sub(s.div(two, s.sub(one, beta2)), one);
  Value lost = s.div(s.mul(s.mul(two, in.step), power2), correction2);
  Value length = s.sub(longest, lost);
  Value above = s.sub(length, four);
  above = s.mul(above, s.sub(length, two));
  above = s.mul(above, longest);
  Value below = s.sub(longest, four);
  below = s.mul(below, s.sub(longest, two));
  below = s.mul(below, length);
  // May be NaN for a length below 4, where it is not selected.
  Value rectification = s.toElement(s.sqrt(s.div(above, below)));

  Value corrected = s.div(m, s.toElement(correction1));
  Value plain = s.mul(corrected, s.toElement(in.lr));
  Value denominator = s.add(s.sqrt(v), eps);
  // torch divides a number by a tensor as number times reciprocal.
  Value inverse = s.div(s.toElement(one), denominator);
  Value adaptive = s.mul(inverse, s.toElement(s.sqrt(correction2)));
  Value rectified = s.mul(s.mul(plain, adaptive), rectification);
  Value isTractable = s.isAbove(length, s.number(5, "threshold"));
  Value p = s.sub(in.parameter, s.select(isTractable, rectified, plain));
  return {p, m, v};
}

ArrayRef<Program> adamPrograms() {
  static constexpr Program programs[] = {
      {"adamw", buildAdam},  {"adam", buildAdam},   {"adamax", buildAdamax},
      {"nadam", buildNAdam}, {"radam", buildRAdam},
  };
  return programs;
}

} // namespace fsdpc::passes

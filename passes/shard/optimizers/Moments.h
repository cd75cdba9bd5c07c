// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The averages of the gradient and of its square that Adam, NAdam, RAdam and
// LAMB keep as their first two states. All of them begin with the same ops in
// the same order, so the averages have the same bits for each.
#pragma once

#include "compiler/options/Options.h"
#include "passes/shard/optimizers/Scalars.h"

namespace fsdpc::passes {

/// Used once per optimizer program: constructed where constants go, then
/// updated in the body. Borrows nothing.
struct AdamMoments {
  using Value = mlir::Value;

  /// Builds the constants.
  AdamMoments(const fsdp::CompileOptions &options, Scalars s)
      : betas(options.betas()), one(s.number(1, "one")),
        beta1(s.number(betas.first, "beta1")),
        beta2(s.number(betas.second, "beta2")) {}

  /// Builds the new averages. A decay that is part of the gradient must have
  /// been added to it before.
  void update(Scalars s, const Arguments &in) {
    average = s.average(in.states[0], in.gradient, one, beta1, betas.first);
    averageSquare = s.averageSquare(in.states[1], in.gradient, one, beta2);
  }

  /// Return 1 - beta^step, as f64: the average's bias towards its start at
  /// zero, by which optimizers divide. `step` counts from 1, so it is never 0.
  Value correction1(Scalars s, Value step) const {
    return s.sub(one, s.pow(beta1, step));
  }
  Value correction2(Scalars s, Value step) const {
    return s.sub(one, s.pow(beta2, step));
  }

  fsdp::NumberPair betas;
  Value one, beta1, beta2; ///< f64
  /// The new states, in this order.
  Value average, averageSquare; ///< f32; null before update
};

} // namespace fsdpc::passes

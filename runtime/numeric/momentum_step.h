// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The momentum of an element whose matrix is orthogonalised, on the host and on
// GPUs (runtime/cuda/kernels), as fsdp.momentum_updates defines it and the
// program of the optimizer computes it again to store it.
#pragma once

#include "runtime/numeric/bfloat16.h"

namespace fsdpc::runtime {

/// The numbers on which a step of the momentum depends, besides the gradient's
/// factor and the element.
struct MomentumStep {
  float limit = 0, sign = 1;
  double momentum = 0;
  bool nesterov = false;

  /// Tensor.lerp, which starts from the nearer end.
  FSDPC_SHARED static float blend(float from, float to, double weight) {
    return weight < 0.5 ? from + float(weight) * (to - from)
                        : to - (to - from) * float(1 - weight);
  }
  /// In the order of prepare() in the optimizers' programs: clip, then
  /// maximize.
  FSDPC_SHARED float update(float scaled, float buffer) const {
    scaled = scaled < -limit ? -limit : scaled;
    float g = (limit < scaled ? limit : scaled) * sign;
    float average = blend(buffer, g, 1 - momentum);
    return nesterov ? blend(g, average, momentum) : average;
  }
};
} // namespace fsdpc::runtime

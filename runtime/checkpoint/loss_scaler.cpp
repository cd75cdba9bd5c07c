// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In f32 like torch's kernel, so that the scales are the same numbers.
#include "runtime/checkpoint/loss_scaler.h"

#include <cmath>

namespace fsdpc::runtime {

void LossScaler::update(bool finite) {
  current.skips += !finite;
  if (!isDynamic())
    return;
  if (!finite) {
    current.inARow = 0;
    current.scale = float(current.scale * rules.backoff);
    return;
  }
  if (++current.inARow < rules.interval)
    return;
  current.inARow = 0;
  // As in torch, a scale that would overflow stays as it is.
  float grown = float(current.scale * rules.growth);
  if (std::isfinite(grown))
    current.scale = grown;
}

} // namespace fsdpc::runtime

// In f32 like torch's kernel, so that the scales are the same numbers.
#include "runtime/core/loss_scaler.h"

#include <cmath>

namespace fsdpc::runtime {

void LossScaler::update(bool finite) {
  if (!isDynamic())
    return;
  if (!finite) {
    ++skips;
    inARow = 0;
    current = float(current * rules.backoff);
    return;
  }
  if (++inARow < rules.interval)
    return;
  inARow = 0;
  float grown = float(current * rules.growth);
  if (std::isfinite(grown))
    current = grown;
}

} // namespace fsdpc::runtime

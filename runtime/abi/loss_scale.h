// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The factor by which the loss's gradient is multiplied, so that small
// gradients do not become 0 in f16 (Micikevicius et al., Mixed Precision
// Training, 2018). The rules and the defaults are those of
// torch.amp.GradScaler.
#pragma once

#include <cstdint>

namespace fsdpc {

struct LossScale {
  double init = 0; ///< the scale of the first step; 0: gradients are not scaled
  /// A step whose gradients are not finite is skipped, and the scale multiplied
  /// by `backoff`. After `interval` steps in a row that were not skipped it is
  /// multiplied by `growth`. With an interval of 0 the scale is constant, and
  /// gradients that are not finite end the run.
  double growth = 2, backoff = 0.5;
  int64_t interval = 0;

  bool isOn() const { return init != 0; }
  bool isDynamic() const { return interval != 0; }
};

inline constexpr LossScale dynamicLossScale = {65536, 2, 0.5, 2000};
/// A dynamic scale below this ends the run: it can help no more.
inline constexpr double leastLossScale = 1e-6;

} // namespace fsdpc

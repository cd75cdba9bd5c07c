// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scale of the loss from step to step, by the rules of
// torch.amp.GradScaler: a step whose gradients are not finite is skipped and
// lowers the scale; enough steps in a row that are not raise it. Every rank
// keeps the same state, since all judge a step by the same all-reduced norm.
#pragma once

#include "runtime/abi/loss_scale.h"

#include <cstdint>

namespace fsdpc::runtime {

/// One per rank, used by the loop's thread. Without a scale it is off, and all
/// functions may be called all the same: the factor is 1, and no step is
/// skipped.
class LossScaler {
public:
  /// The state that the scaler keeps from step to step.
  struct State {
    float scale = 1;    ///< of the next step's loss; f32, as torch's
    int64_t inARow = 0; ///< finite steps since the scale changed
    int64_t skips = 0;
  };

  explicit LossScaler(const LossScale &rules) : rules(rules) {
    if (rules.isOn())
      current.scale = float(rules.init);
  }

  const State &state() const { return current; }
  /// Goes on from the state of another run. A scale that is constant or off
  /// stays as it is, but steps that were skipped stay skipped.
  void resume(const State &stored) {
    if (isDynamic())
      current = stored;
    current.skips = stored.skips;
  }

  /// On if the program was compiled with a scale; dynamic if steps change it.
  bool isOn() const { return rules.isOn(); }
  bool isDynamic() const { return rules.isDynamic(); }
  /// The factor of the next step's loss: 1 if the scaler is off.
  float scale() const { return current.scale; }
  /// Steps that were skipped so far.
  int64_t skipped() const { return current.skips; }

  /// Ends a step, which was skipped if it was not finite. A scale that
  /// would overflow stays as it is.
  void update(bool finite);

private:
  LossScale rules;
  State current;
};

} // namespace fsdpc::runtime

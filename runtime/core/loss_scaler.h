// The scale of the loss from step to step, by the rules of
// torch.amp.GradScaler: a step whose gradients are not finite is skipped and
// lowers the scale; enough steps in a row that are not raise it. Every rank
// keeps the same state, since all judge a step by the same all-reduced norm.
#pragma once

#include "shared/loss_scale.h"

namespace fsdpc::runtime {

class LossScaler {
public:
  explicit LossScaler(const LossScale &rules)
      : rules(rules), current(rules.isOn() ? float(rules.init) : 1.0f) {}

  bool isOn() const { return rules.isOn(); }
  bool isDynamic() const { return rules.isDynamic(); }
  // The factor of the next step's loss: 1 if the scaler is off.
  float scale() const { return current; }
  // Steps that were skipped so far.
  int64_t skipped() const { return skips; }

  // Ends a step. Without a dynamic scale this changes nothing.
  void update(bool finite);

private:
  LossScale rules;
  float current; // f32, as torch's
  int64_t inARow = 0, skips = 0;
};

} // namespace fsdpc::runtime

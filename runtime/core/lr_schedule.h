// --lr-schedule: the learning rate as a function of the step alone, so that a
// run has no schedule state to save. Constant, linear, or cosine decay
// (Loshchilov and Hutter, SGDR, 2017), each after a linear warmup.
#pragma once

#include "shared/status.h"

#include <cmath>
#include <cstdint>
#include <string>

namespace fsdpc::runtime {

struct LrSchedule {
  enum Kind { constant, linear, cosine } kind = constant;
  int64_t warmup = 0; // steps over which the rate rises linearly
  double minimum = 0; // where linear and cosine decay end

  // Returns the rate of `step`, counted from 0, in a run of `steps`. With a
  // warmup of W, step 0 has rate/W and step W the full rate. From there linear
  // and cosine decay to `minimum`, which step `steps`, one past the last, would
  // have.
  double at(int64_t step, int64_t steps, double rate) const {
    if (step < warmup)
      return rate * double(step + 1) / double(warmup);
    if (kind == constant || steps <= warmup)
      return rate;
    double passed = double(step - warmup) / double(steps - warmup);
    double left =
        kind == linear ? 1 - passed : 0.5 * (1 + std::cos(M_PI * passed));
    return minimum + (rate - minimum) * left;
  }
};

// Parses "cosine,warmup=100,min=1e-5".
Result<LrSchedule> parseSchedule(const std::string &text);

} // namespace fsdpc::runtime

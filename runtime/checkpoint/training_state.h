// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The state of a training loop from one step to the next, beside the
// parameters, optimizer states and buffers in the rank's memory. A checkpoint
// holds it, so that a resumed run goes on exactly where the last one stopped.
//
// All else is a function of the step: learning rate, seeds of dropout, order of
// samples, Adam's correction of its bias.
#pragma once

#include "runtime/checkpoint/loss_scaler.h"

#include <cstdint>

namespace fsdpc::runtime {

struct TrainingState {
  int64_t step = 0;   ///< steps done, which is the number of the next one
  int64_t sample = 0; ///< number of the next step's first sample in the run
  LossScaler::State scaler;
};

} // namespace fsdpc::runtime

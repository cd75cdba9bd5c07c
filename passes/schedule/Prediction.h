// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The step that the cost model expects of a scheduled module.
#pragma once

#include "compiler/analysis/CommunicationVolume.h"
#include "passes/schedule/ScheduleIR.h"
#include "runtime/abi/manifest.h"

namespace fsdpc::passes {

/// Predicts the update of a module for any machine and number of ranks. It
/// reads the module, which must not change meanwhile.
class UpdatePredictor {
public:
  explicit UpdatePredictor(mlir::ModuleOp module);

  /// Returns by how many µs an update lengthens a step on the machine. `ir` is
  /// the scheduled @microbatch with the machine's durations, beside which a GPU
  /// gathers what the update has changed.
  double predictUs(const ScheduleIR &ir,
                   const schedule::Machine &machine) const;

private:
  mlir::ModuleOp module;
  Manifest manifest;
  analysis::CommunicationVolume volume;
};

/// Writes `fsdp.predicted` on the module: the times of a microbatch and of an
/// update at --plan-threads, for --plan-ranks and some other numbers of ranks.
/// `ir` is the scheduled @microbatch, whose durations are those of the last
/// number when this returns. The module must have its schedule and its
/// communicated bytes.
void writePrediction(mlir::ModuleOp module, ScheduleIR &ir);

} // namespace fsdpc::passes

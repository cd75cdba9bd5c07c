// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A plan: a module past the phase `memory` as it would run on so many ranks of
// a machine. `fsdpc simulate`, `tune`, `diff` and `--report` all read this one
// object, whose times are the schedule's own timeline.
#pragma once

#include "compiler/schedule/cluster.h"
#include "passes/schedule/ScheduleIR.h"
#include "runtime/abi/manifest.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

namespace fsdpc::plan {

/// Says how a run differs from that of a compile's own prediction.
struct Conditions {
  int64_t accumulate = 1; ///< microbatches of a step
  schedule::Unevenness unevenness;
};

/// A step on so many ranks. Times are in µs.
struct Estimate {
  int64_t ranks = 1;
  double microbatchUs = 0, updateUs = 0, stepUs = 0;
  /// Times of a microbatch in µs: how long its waits stall a rank (the mean),
  /// by the level of the network that takes the time, and how far ops are
  /// slowed down.
  double nodeExposedUs = 0, crossExposedUs = 0, slowedUs = 0;
  double samplesPerSecond = 0, tokensPerSecond = 0; ///< of all ranks
  /// The share of the machine's arithmetic that the model's own products take,
  /// three times those of the forward (PaLM's MFU). 0 if the machine has no
  /// such figure.
  double mfu = 0;
  int64_t peakBytes = 0; ///< of a rank
};

class Plan {
public:
  /// Reads a module that is past the phase `memory`. The plan refers to it.
  static mlir::FailureOr<Plan> of(mlir::ModuleOp module);

  /// Fails if the program would not run so many microbatches per step.
  llvm::LogicalResult checkAccumulate(int64_t accumulate);
  /// Sets the number of ranks that durations are those of.
  void setRanks(int64_t ranks);
  /// Estimates a step on so many ranks, which become those of the durations.
  Estimate estimate(int64_t ranks, const Conditions &conditions = {});

  /// Returns the µs of ops of a microbatch, without stalls.
  double opsUs() const;
  /// Returns what a peak holds: kinds of memory, and owners in the arena.
  std::vector<schedule::Contributor> owners(size_t count) const;

  mlir::ModuleOp module;
  passes::ScheduleIR ir;
  Manifest manifest;
  schedule::Machine machine;

private:
  double productFlops = 0;         ///< of a forward
  int64_t samples = 0, tokens = 0; ///< of a microbatch; tokens 0: unknown
};

/// Returns everything that a report shows, as JSON: the step, every op and
/// collective with its times, memory over the step, units and the roofline. The
/// texts in it are as in the model.
llvm::json::Object toJson(Plan &plan, const Estimate &estimate);

/// Returns the figures of a step.
llvm::json::Object toJson(const Estimate &estimate);

/// Returns the name of an op's unit, for readers.
std::string unitOf(mlir::Operation *op);

/// Returns "12.345 ms", "1.234 s"; "8.5 GiB".
std::string timeText(double us);
std::string bytesText(int64_t bytes);

} // namespace fsdpc::plan

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a function to the scheduling problem of compiler/schedule and back: the
// ops at its positions, and the ops that are its collectives.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/schedule/machine.h"
#include "compiler/schedule/problem.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <vector>

namespace fsdpc::passes {

/// All gathers share a channel and a communicator, and all reductions share
/// another. Collectives of one channel run one after the other. setDurations
/// puts all on one channel where they take turns (takeTurns).
enum Channel { gatherChannel, reduceChannel };

/// A collective, in one piece as materialize-collectives writes it, or split.
/// An offload counts as a reduction and a fetch as a gather: they run on the
/// same streams and hold memory in the same way.
struct CollectiveOps {
  mlir::Operation *first; ///< all_gather, reduce_scatter, or its start
  mlir::Operation *wait;  ///< of a start, else null
  mlir::SmallVector<mlir::Value> results; ///< what is gathered or fetched
  mlir::SmallVector<mlir::Operation *> frees;
  /// The bytes that it moves: of layouts cut over all ranks, of those cut over
  /// groups, and the sums that groups hand on.
  int64_t wholeBytes = 0, groupBytes = 0, sumBytes = 0;
  /// The elements of a gather that are converted from the masters: of layouts
  /// cut over all ranks, and of those cut over groups.
  int64_t castElements = 0, castGroupElements = 0;
  /// The elements of a reduction that become f32 sums, and the bytes of one
  /// element of the buffers.
  int64_t summedElements = 0, elementBytes = 0;
  /// Layouts whose reduction is compressed: their elements; the bytes that each
  /// rank sends to every other one, or that are summed over ranks; and the
  /// operations of the reduction.
  int64_t compressedElements = 0, toEachBytes = 0, summedBytes = 0;
  double compressionFlops = 0;
  /// The elements that travel in blocks, and the bytes of these.
  int64_t blockElements = 0, blockedBytes = 0;
  /// The bytes that an offload writes or a fetch reads.
  int64_t fileBytes = 0;
  /// The bytes of all ranks' parameters or sums of gradients that are
  /// offloaded: of layouts cut over all ranks, and of those cut over groups. A
  /// reduction that continues sums reads them, too.
  int64_t storedBytes = 0, storedGroupBytes = 0;
  bool continuesSums = false;
  /// The ranks of a group that gathers secondary shards (0: none are read).
  int64_t secondaryRanks = 0;
};

/// A function as a scheduling problem, and its ops by the numbers that the
/// problem uses. It refers to the ops, and is valid until they are erased.
struct ScheduleIR {
  /// The ops at the problem's positions: all except collectives, their waits
  /// and frees; then the function's terminator, for actions at the end.
  mlir::SmallVector<mlir::Operation *> ops;
  /// The ops of the problem's collectives, in their order.
  std::vector<CollectiveOps> collectives;
  schedule::Problem problem;
  /// The present schedule, if the collectives are split.
  schedule::Schedule schedule;
};

/// Reads the problem of a function, without base bytes and options. Each start
/// must have one wait, and each gathered buffer one free and at least one use.
/// An all_gather that nothing uses is left out.
llvm::FailureOr<ScheduleIR> readSchedule(mlir::func::FuncOp function);

/// Writes the durations of ops and collectives on a machine into the problem.
/// Also for another number of ranks than the schedule was made for: bytes are
/// of whole layouts.
void setDurations(ScheduleIR &ir, const schedule::Machine &machine);

/// Returns a time as dumps have it, rounded.
mlir::FloatAttr timeAttr(mlir::Builder &builder, double us);

/// Writes `fsdp.bytes` and `fsdp.cost_us` on starts, `fsdp.exposed_us` on
/// waits, and `fsdp.communication` on the module. The schedule must be
/// complete, with one wait per collective.
void annotate(const ScheduleIR &ir, const schedule::Timeline &timeline);

} // namespace fsdpc::passes

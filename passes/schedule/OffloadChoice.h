// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses which activations are offloaded, by the schedule that a choice would
// have.
#pragma once

#include "passes/schedule/ScheduleIR.h"

namespace fsdpc::passes {

/// The activations that can be offloaded, as offload-activations has found
/// them, in pieces that move together.
struct Offloadable {
  int64_t pieces = 0, bytes = 0;
};

/// Keeps activations in memory that --memory-limit has room for: removes their
/// fsdp.offload and fsdp.fetch, which are in one piece each. Without a limit
/// all stay offloaded, as under a --schedule that has rows for all. If no
/// choice keeps the limit, the one of the least peak is left, and the schedule
/// reports it. Returns what could be offloaded.
llvm::FailureOr<Offloadable> chooseOffloaded(mlir::ModuleOp module);

/// Writes `fsdp.offloaded` on the module, if anything could be offloaded: what
/// is, what its copies take and how much of that is exposed. The schedule must
/// be complete.
void annotateOffloaded(const ScheduleIR &ir, const schedule::Timeline &timeline,
                       const Offloadable &all);

} // namespace fsdpc::passes

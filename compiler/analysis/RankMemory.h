// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of a rank besides the arena, as the runtime will allocate it, and
// the error if all of it exceeds the cap.
#pragma once

#include "compiler/schedule/problem.h"
#include "mlir/IR/BuiltinOps.h"

#include <vector>

namespace fsdpc {
struct Manifest;
struct MemoryPlan;
} // namespace fsdpc

namespace fsdpc::analysis {

/// Returns the memory plan of one of `ranks` ranks in one node, at
/// --plan-threads: on the host under mpi, on a GPU with the workspaces of its
/// libraries.
MemoryPlan planRank(const Manifest &manifest, int ranks);

/// Copy what plan-memory has written into `fsdp.arena`, and the deepest stack
/// of the kernels' plans.
void addArena(mlir::ModuleOp module, Manifest &manifest);
void addStacks(mlir::ModuleOp module, Manifest &manifest);

/// Returns the manifest of a module of the phases `kernels` to `memory` as far
/// as memory depends on it: what planRank answers for it is what it answers for
/// the program. Without the arena before plan-memory.
Manifest describeRank(mlir::ModuleOp module);

/// The memory of a rank at --plan-ranks under mpi and --plan-threads, without
/// the arena. The stacks of kernels count once plan-kernels has run.
struct RankMemory {
  explicit RankMemory(mlir::ModuleOp module);

  int64_t total() const;
  /// The bytes of each kind: parameters, gradients, optimizer, …
  std::vector<schedule::Contributor> kinds;
  int64_t ranks;
};

/// Emits the error that a rank's peak is above the cap, with the three largest
/// contributors among the rank's memory and `arena`.
void reportOverLimit(mlir::ModuleOp module, const RankMemory &memory,
                     std::vector<schedule::Contributor> arena, int64_t peak,
                     int64_t cap);

} // namespace fsdpc::analysis

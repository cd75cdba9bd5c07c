// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory of a schedule over its ops, for tables and charts.
#pragma once

#include "compiler/schedule/problem.h"

namespace fsdpc::schedule {

/// The bytes of the arena that are live at each op, by what holds them.
struct LiveBytes {
  /// One number per op of the problem, and two past them: activations and other
  /// tensors of the step, gathered parameters, and gradients that wait for
  /// their reduction.
  std::vector<int64_t> tensors, gathered, reduced;

  /// Returns the bytes of all kinds at an op. Their maximum is a lower bound of
  /// the arena, whose packing may leave gaps.
  int64_t at(size_t op) const {
    return tensors[op] + gathered[op] + reduced[op];
  }
};

/// Counts the bytes of a schedule, which must be complete and pass `verify`. A
/// gathered buffer lives from its start to its free, one that is reduced from
/// its definition to its wait.
LiveBytes liveBytesByKind(const Problem &problem, const Schedule &schedule);

} // namespace fsdpc::schedule

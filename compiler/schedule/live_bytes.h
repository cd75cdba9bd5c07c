// The memory of a schedule over its ops, for tables and charts.
#ifndef FSDPC_COMPILER_SCHEDULE_LIVE_BYTES_H
#define FSDPC_COMPILER_SCHEDULE_LIVE_BYTES_H

#include "compiler/schedule/problem.h"

namespace fsdpc::schedule {

/// The bytes of the arena that are live at each op, by what holds them.
struct LiveBytes {
  std::vector<int64_t> tensors, gathered, reduced;

  int64_t at(size_t op) const {
    return tensors[op] + gathered[op] + reduced[op];
  }
};

LiveBytes liveBytesByKind(const Problem &problem, const Schedule &schedule);

} // namespace fsdpc::schedule

#endif // FSDPC_COMPILER_SCHEDULE_LIVE_BYTES_H

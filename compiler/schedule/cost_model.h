// Durations of ops and collectives on a machine: a roofline for compute,
// latency plus bandwidth for collectives. The numbers steer the prefetch
// solver, are printed beside its decisions, and predict the step; nothing else
// depends on them.
#ifndef FSDPC_COMPILER_SCHEDULE_COST_MODEL_H
#define FSDPC_COMPILER_SCHEDULE_COST_MODEL_H

#include "compiler/schedule/machine.h"

#include <cstdint>
#include <string_view>

namespace fsdpc::schedule {

/// Returns the µs of an op of the class, which computes `flops` in `type` and
/// moves `bytes`: the slower of the two, and what a call costs.
double opUs(const Machine &machine, std::string_view opClass, double flops,
            double bytes, ElementType type);

/// Return the µs of a collective on a full buffer of `bytes` (all N shards, in
/// the wire type). A rank receives (N−1)/N of it, in an all-reduce twice as
/// much. With one rank nothing is sent, and the result is 0.
double allGatherUs(const Machine &machine, int64_t bytes);
double reduceScatterUs(const Machine &machine, int64_t bytes);
double allReduceUs(const Machine &machine, int64_t bytes);

/// Return the same for a buffer that is cut over the ranks of a node and
/// replicated across nodes (hybrid). A rank gathers within its node. It reduces
/// there as well, and then the nodes hand on the sums of its part, of which a
/// full buffer has `sumBytes`.
double groupGatherUs(const Machine &machine, int64_t bytes);
double groupReduceUs(const Machine &machine, int64_t bytes, int64_t sumBytes);

} // namespace fsdpc::schedule

#endif // FSDPC_COMPILER_SCHEDULE_COST_MODEL_H

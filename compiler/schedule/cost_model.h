// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Durations of ops and collectives on a machine: a roofline for compute,
// latency plus bandwidth for collectives. The numbers steer the prefetch
// solver, are printed beside its decisions, and predict the step; nothing else
// depends on them.
#pragma once

#include "compiler/schedule/machine.h"

#include <cstdint>
#include <string_view>

namespace fsdpc::schedule {

/// Returns the µs of an op of the class, which computes `flops` in `type` and
/// moves `bytes`: the slower of the two, and what a call costs.
double opUs(const Machine &machine, std::string_view opClass, double flops,
            double bytes, ElementType type);

/// Returns how many times as long as by its flops a product takes on the
/// machine's processors. It consists of `count` results of `rows` × `columns`,
/// in tiles: those at the edges are partly empty, and in the last wave not
/// every processor has one. 1 if the machine's processors are not known.
double tilingFactor(const Machine &machine, int64_t count, int64_t rows,
                    int64_t columns);

/// Returns the µs in which a rank copies, casts or adds values that it has: all
/// that collectives do with `bytes` read and written.
double copyUs(const Machine &machine, double bytes);

/// Returns the ranks of a shard group, as the memory plan has it
/// (plannedGroup): those of a node, or all if nodes have not equally many.
int groupRanks(const Machine &machine);

/// Return the µs of a collective on a full buffer of `bytes` (all N shards, in
/// the wire type). A rank receives (N−1)/N of it. With one rank nothing is
/// sent, and the result is 0. In an all-to-all a rank receives as much as in a
/// reduce-scatter, and every shard from its owner.
double allGatherUs(const Machine &machine, int64_t bytes);
double reduceScatterUs(const Machine &machine, int64_t bytes);
double allToAllUs(const Machine &machine, int64_t bytes);

/// Returns the µs of an all-to-all in which a rank receives `received` bytes,
/// as many from each other rank.
double tradeUs(const Machine &machine, uint64_t received);

/// Return the same for a buffer that is cut over the ranks of a node and
/// replicated across nodes. A rank gathers within its group. It reduces there
/// as well, and then the groups hand on the sums of its part, of which a full
/// buffer has `sumBytes`.
double groupGatherUs(const Machine &machine, int64_t bytes);
double groupReduceUs(const Machine &machine, int64_t bytes, int64_t sumBytes);

/// Returns the µs in which a rank reads and writes so many bytes of what is
/// offloaded, and those of an op of `opUs` that overlaps its copies.
double offloadUs(const Machine &machine, double read, double written);
double offloadedOpUs(const Machine &machine, double opUs, double read,
                     double written);

/// Returns by which share ops and collectives take longer beside each other, on
/// the links that collectives of all ranks use. `copiesFiles` is true if some
/// of these collectives write to files or read them.
Contention contentionOf(const Machine &machine, bool copiesFiles);

/// Returns true if a gather and a reduction cannot run at once: they share a
/// link, or the rank has no core for each.
bool takeTurns(const Machine &machine, bool copiesFiles);

} // namespace fsdpc::schedule

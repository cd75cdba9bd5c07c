// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Durations from the figures of a machine: a roofline for ops, rings or
// exchanges for collectives, as the target sends them, and copies for what is
// offloaded. Rates are in 10⁹ per second, which is 10³ per µs; those measured
// by others go before those of a data sheet.

#include "compiler/schedule/cost_model.h"

#include "runtime/abi/staging.h"

#include <algorithm>

namespace fsdpc::schedule {

// The slower of arithmetic and memory traffic. Rates are per core, and an op is
// assumed to use all cores of the rank.
double opUs(const Machine &machine, std::string_view opClass, double flops,
            double bytes, ElementType type) {
  const Rate &rate = machine.ratesOf(opClass)[size_t(type)];
  double gflops = rate.gflops.reached();
  double arithmetic = gflops > 0 ? flops / gflops : 0;
  return rate.callUs + std::max(arithmetic, bytes / rate.memoryGBs.reached()) /
                           (1e3 * machine.cores);
}

// The best of cuBLAS's three most efficient tiles, by NVIDIA's Matrix
// Multiplication Background User's Guide (2.3 and 3), at one rate. The library
// has smaller ones, and sums that several processors share, at lower rates.
double tilingFactor(const Machine &machine, int64_t count, int64_t rows,
                    int64_t columns) {
  int64_t processors = machine.processors, least = INT64_MAX;
  if (processors == 0 || count * rows * columns == 0)
    return 1;
  auto over = [](int64_t value, int64_t unit) {
    return (value + unit - 1) / unit;
  };
  for (auto [high, wide] : {std::pair{128, 256}, {256, 128}, {128, 128}}) {
    int64_t tiles = count * over(rows, high) * over(columns, wide);
    least = std::min(least, over(tiles, processors) * processors * high * wide);
  }
  return double(least) / double(count * rows * columns);
}

double copyUs(const Machine &machine, double bytes) {
  return opUs(machine, "copy", 0, bytes, ElementType::f32);
}

// Returns the ranks of a node, of those that there are.
static int ranksOfNode(const Machine &machine) {
  return machine.ranksPerNode > 0
             ? std::min(machine.ranksPerNode, machine.ranks)
             : machine.ranks;
}

int groupRanks(const Machine &machine) {
  int node = ranksOfNode(machine);
  return machine.ranks % node == 0 ? node : machine.ranks;
}

namespace {
/// How shards of other nodes get to a rank.
enum class Exchange { Rings, HandedOn, Direct };
} // namespace

/// The µs of an exchange in which a rank receives all shards except its own, at
/// the rate `rate` of a link.
///
/// Rings hand the shards on: there is one per rank of a node, which enters the
/// node at that rank and leaves it at another one. So each rank's port brings
/// in a part of all that the node receives, while the links within the node
/// carry the rest; both are busy at once, and the slower one counts. Otherwise
/// each rank receives the shards of other nodes itself, and the two levels take
/// turns. They also do in a gather of the host, where each rank receives one
/// shard of each other node and hands it on.
static double exchangeUs(const Machine &machine, int64_t bytes,
                         Speed Link::*rate, Exchange kind) {
  if (machine.ranks <= 1)
    return 0;
  int node = ranksOfNode(machine);
  double received = double(bytes) * (machine.ranks - 1) / machine.ranks;
  double latencyUs = node > 1 ? machine.node.latencyUs : 0;
  if (machine.ranks == node)
    return latencyUs + received / (1e3 * (machine.node.*rate).reached());
  latencyUs += machine.nodes.latencyUs;
  bool equalNodes = machine.ranks % node == 0;
  double crossing = double(bytes) * (machine.ranks - node) / machine.ranks;
  if (kind == Exchange::Rings)
    crossing = received / node;
  else if (kind == Exchange::HandedOn && equalNodes)
    crossing /= node;
  double crossingUs = crossing / (1e3 * (machine.nodes.*rate).reached());
  double innerUs =
      (received - crossing) / (1e3 * (machine.node.*rate).reached());
  return latencyUs + (kind == Exchange::Rings ? std::max(crossingUs, innerUs)
                                              : crossingUs + innerUs);
}

double allGatherUs(const Machine &machine, int64_t bytes) {
  return exchangeUs(machine, bytes, &Link::gatherGBs,
                    machine.isGpu ? Exchange::Rings : Exchange::HandedOn);
}

/// The µs of the host's reduce-scatter over nodes, each of which continues the
/// sums of the node before it. A rank takes in a part of all sums of its node,
/// and then what it is to have of the last node's; within the node a rank
/// receives the values of all others.
static double handedSumsUs(const Machine &machine, int64_t bytes) {
  int node = ranksOfNode(machine), nodes = machine.ranks / node;
  double crossing =
      double(bytes) / node + (nodes > 2 ? double(bytes) / machine.ranks : 0);
  double inner = double(bytes) * (node - 1) / node;
  return machine.node.latencyUs + machine.nodes.latencyUs +
         crossing / (1e3 * machine.nodes.reduceGBs.reached()) +
         inner / (1e3 * machine.node.reduceGBs.reached());
}

// A reduce-scatter moves as many bytes as an all-gather of the same buffer, or
// on the host sums, where these are fewer (NodeReducer::pays).
double reduceScatterUs(const Machine &machine, int64_t bytes) {
  int node = ranksOfNode(machine), nodes = machine.ranks / node;
  if (!machine.isGpu && node > 1 && machine.ranks % node == 0 &&
      (nodes - 1) * node > nodes)
    return handedSumsUs(machine, bytes);
  return exchangeUs(machine, bytes, &Link::reduceGBs,
                    machine.isGpu ? Exchange::Rings : Exchange::Direct);
}

double allToAllUs(const Machine &machine, int64_t bytes) {
  return exchangeUs(machine, bytes, &Link::reduceGBs, Exchange::Direct);
}

// A full buffer has the rank's own shard besides.
double tradeUs(const Machine &machine, uint64_t received) {
  if (machine.ranks <= 1)
    return 0;
  return allToAllUs(machine,
                    int64_t(received) * machine.ranks / (machine.ranks - 1));
}

// The ranks of one shard group as a machine of their own.
static Machine oneGroup(const Machine &machine) {
  Machine group = machine;
  group.ranks = groupRanks(machine);
  return group;
}

double groupGatherUs(const Machine &machine, int64_t bytes) {
  return allGatherUs(oneGroup(machine), bytes);
}

// NCCL sums a rank's part over M groups by an all-reduce, of which a rank
// sends and receives 2(M-1)/M. The host's groups hand their sums on in the
// order of ranks, and the last group sends the complete ones to every other
// group, which is the most that a rank sends. It has the first piece when that
// has gone through all groups before it.
double groupReduceUs(const Machine &machine, int64_t bytes, int64_t sumBytes) {
  int ranks = groupRanks(machine), groups = machine.ranks / ranks;
  double us = reduceScatterUs(oneGroup(machine), bytes);
  if (groups == 1)
    return us;
  double part = double(sumBytes) / ranks;
  double sent =
      machine.isGpu
          ? 2 * part * (groups - 1) / groups
          : (groups - 1) * (part + std::min(part, double(groupPieceBytes)));
  return us + machine.nodes.latencyUs +
         sent / (1e3 * machine.nodes.reduceGBs.reached());
}

// A GPU's link carries both directions at once.
double offloadUs(const Machine &machine, double read, double written) {
  double readUs = read / (1e3 * machine.offload.readGBs.reached());
  double writeUs = written / (1e3 * machine.offload.writeGBs.reached());
  return machine.isGpu ? std::max(readUs, writeUs) : readUs + writeUs;
}

// A GPU computes on one piece while others are copied. On the host the thread
// that copies takes the core from the update, as far as it does not wait for a
// disk.
double offloadedOpUs(const Machine &machine, double opUs, double read,
                     double written) {
  double copiesUs = offloadUs(machine, read, written);
  return machine.isGpu ? std::max(opUs, copiesUs) : opUs + copiesUs;
}

// Returns the cores that a collective takes. On a single rank a collective is a
// copy, which needs the core too.
static double takenCores(const Machine &machine, bool copiesFiles) {
  bool crosses = machine.ranks > ranksOfNode(machine);
  double taken = (crosses ? machine.nodes : machine.node).cores;
  // A copy to or from a file keeps a core busy.
  return copiesFiles && !machine.isGpu ? std::max(taken, 1.0) : taken;
}

bool takeTurns(const Machine &machine, bool copiesFiles) {
  return machine.sharedLink ||
         2 * takenCores(machine, copiesFiles) > machine.cores;
}

// Ops and collectives share a rank's cores in proportion to what they need of
// them. Then both take as much longer as there are cores missing.
Contention contentionOf(const Machine &machine, bool copiesFiles) {
  double missing = takenCores(machine, copiesFiles) / machine.cores;
  return {(1 + machine.computeSlowdown) * (1 + missing) - 1, missing};
}

} // namespace fsdpc::schedule

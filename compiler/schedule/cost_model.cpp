// See cost_model.h. Rates are in 10⁹ per second, which is 10³ per µs.

#include "compiler/schedule/cost_model.h"

#include "shared/staging.h"

#include <algorithm>

namespace fsdpc::schedule {

// The slower of arithmetic and memory traffic. Rates are per core, and an op is
// assumed to use all cores of the rank.
double opUs(const Machine &machine, std::string_view opClass, double flops,
            double bytes, ElementType type) {
  const Rate &rate = machine.ratesOf(opClass)[size_t(type)];
  double arithmetic = rate.gflops > 0 ? flops / rate.gflops : 0;
  return rate.callUs +
         std::max(arithmetic, bytes / rate.memoryGBs) / (1e3 * machine.cores);
}

static int ranksOfNode(const Machine &machine) {
  return machine.ranksPerNode > 0
             ? std::min(machine.ranksPerNode, machine.ranks)
             : machine.ranks;
}

/// The µs of an exchange in which a rank receives all shards except its own:
/// `rate` is that of the link for it.
static double exchangeUs(const Machine &machine, int64_t bytes,
                         double Link::*rate) {
  if (machine.ranks <= 1)
    return 0;
  double received = double(bytes) * (machine.ranks - 1) / machine.ranks;
  double crossing =
      double(bytes) * (machine.ranks - ranksOfNode(machine)) / machine.ranks;
  double us = machine.node.latencyUs +
              (received - crossing) / (1e3 * machine.node.*rate);
  // Both levels take their turn, and the slower one's latency counts.
  return crossing > 0 ? us + crossing / (1e3 * machine.nodes.*rate) +
                            std::max(0.0, machine.nodes.latencyUs -
                                              machine.node.latencyUs)
                      : us;
}

double allGatherUs(const Machine &machine, int64_t bytes) {
  return exchangeUs(machine, bytes, &Link::gatherGBs);
}

// A reduce-scatter moves as many bytes as an all-gather of the same buffer.
double reduceScatterUs(const Machine &machine, int64_t bytes) {
  return exchangeUs(machine, bytes, &Link::reduceGBs);
}

// The ranks of one node as a machine of their own.
static Machine oneNode(const Machine &machine) {
  Machine node = machine;
  node.ranks = ranksOfNode(machine);
  node.ranksPerNode = 0;
  return node;
}

double groupGatherUs(const Machine &machine, int64_t bytes) {
  return allGatherUs(oneNode(machine), bytes);
}

// The last node sends the complete sums to every other one, which is the most
// that a rank sends. It has the first piece when that has gone through all
// nodes before it.
double groupReduceUs(const Machine &machine, int64_t bytes, int64_t sumBytes) {
  int node = ranksOfNode(machine), others = machine.ranks / node - 1;
  double part = double(sumBytes) / node;
  double handedOn = others * (part + std::min(part, double(hybridPieceBytes)));
  double across = others ? machine.nodes.latencyUs +
                               handedOn / (1e3 * machine.nodes.reduceGBs)
                         : 0;
  return reduceScatterUs(oneNode(machine), bytes) + across;
}

// As a reduce-scatter followed by an all-gather, started once.
double allReduceUs(const Machine &machine, int64_t bytes) {
  if (machine.ranks <= 1)
    return 0;
  return reduceScatterUs(machine, bytes) + allGatherUs(machine, bytes) -
         machine.node.latencyUs;
}

} // namespace fsdpc::schedule

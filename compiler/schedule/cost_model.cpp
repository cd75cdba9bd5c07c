// See cost_model.h. Rates are in 10⁹ per second, which is 10³ per µs.

#include "compiler/schedule/cost_model.h"

#include "shared/staging.h"

#include <algorithm>

namespace fsdpc::schedule {

// The slower of arithmetic and memory traffic. Rates are per core, and a kernel
// is assumed to use all cores of the rank.
double rooflineUs(const Machine &machine, double flops, double bytes,
                  ElementType type) {
  // The host converts the operands of f16 products to f32.
  double gflops =
      type == ElementType::BF16 ? machine.bf16Gflops : machine.f32Gflops;
  return std::max(flops / gflops, bytes / machine.memoryGBs) /
         (1e3 * machine.cores);
}

double gemmUs(const Machine &machine, int64_t m, int64_t n, int64_t k,
              ElementType type, int64_t batch) {
  double flops = 2.0 * double(batch) * double(m) * double(n) * double(k);
  // Each operand is read once and the result written once: the least traffic
  // possible.
  double elements =
      double(batch) *
      (double(m) * double(k) + double(k) * double(n) + double(m) * double(n));
  return rooflineUs(machine, flops, elements * double(bytesOf(type)), type);
}

double elementwiseUs(const Machine &machine, double bytes) {
  return rooflineUs(machine, 0, bytes, ElementType::F32);
}

static int ranksOfNode(const Machine &machine) {
  return machine.ranksPerNode > 0
             ? std::min(machine.ranksPerNode, machine.ranks)
             : machine.ranks;
}

static double crossNodeGBs(const Machine &machine) {
  return machine.crossNodeGBs > 0 ? machine.crossNodeGBs
                                  : machine.collectiveGBs;
}

/// The µs of `passes` exchanges, in each of which a rank receives all shards
/// except its own.
static double exchangeUs(const Machine &machine, int64_t bytes, int passes) {
  if (machine.ranks <= 1)
    return 0;
  double received =
      passes * double(bytes) * (machine.ranks - 1) / machine.ranks;
  double crossing = passes * double(bytes) *
                    (machine.ranks - ranksOfNode(machine)) / machine.ranks;
  return machine.collectiveLatencyUs +
         (received - crossing) / (1e3 * machine.collectiveGBs) +
         crossing / (1e3 * crossNodeGBs(machine));
}

double allGatherUs(const Machine &machine, int64_t bytes) {
  return exchangeUs(machine, bytes, 1);
}

// A reduce-scatter moves as many bytes as an all-gather of the same buffer.
double reduceScatterUs(const Machine &machine, int64_t bytes) {
  return exchangeUs(machine, bytes, 1);
}

// A collective of the ranks of one node.
double groupGatherUs(const Machine &machine, int64_t bytes) {
  Machine node = machine;
  node.ranks = ranksOfNode(machine);
  node.ranksPerNode = 0;
  return exchangeUs(node, bytes, 1);
}

// The last node sends the complete sums to every other one, which is the most
// that a rank sends. It has the first piece when that has gone through all
// nodes before it.
double groupReduceUs(const Machine &machine, int64_t bytes, int64_t sumBytes) {
  int node = ranksOfNode(machine), others = machine.ranks / node - 1;
  double part = double(sumBytes) / node;
  double handedOn = others * (part + std::min(part, double(hybridPieceBytes)));
  double across = others ? machine.collectiveLatencyUs +
                               handedOn / (1e3 * crossNodeGBs(machine))
                         : 0;
  return groupGatherUs(machine, bytes) + across;
}

// As a reduce-scatter followed by an all-gather.
double allReduceUs(const Machine &machine, int64_t bytes) {
  return exchangeUs(machine, bytes, 2);
}

} // namespace fsdpc::schedule

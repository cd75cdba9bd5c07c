// See cost_model.h. Rates are in 10⁹ per second, which is 10³ per µs.

#include "compiler/schedule/cost_model.h"

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

/// The µs of `passes` exchanges, in each of which a rank receives all shards
/// except its own.
static double exchangeUs(const Machine &machine, int64_t bytes, int passes) {
  if (machine.ranks <= 1)
    return 0;
  double received =
      passes * double(bytes) * (machine.ranks - 1) / machine.ranks;
  return machine.collectiveLatencyUs + received / (1e3 * machine.collectiveGBs);
}

double allGatherUs(const Machine &machine, int64_t bytes) {
  return exchangeUs(machine, bytes, 1);
}

// A reduce-scatter moves as many bytes as an all-gather of the same buffer.
double reduceScatterUs(const Machine &machine, int64_t bytes) {
  return exchangeUs(machine, bytes, 1);
}

// As a reduce-scatter followed by an all-gather.
double allReduceUs(const Machine &machine, int64_t bytes) {
  return exchangeUs(machine, bytes, 2);
}

} // namespace fsdpc::schedule

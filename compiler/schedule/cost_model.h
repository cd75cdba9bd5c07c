// Durations of ops and collectives from flops and bytes: a roofline for
// compute, latency plus bandwidth for collectives. The numbers steer the
// prefetch solver and are printed beside its decisions; nothing else depends on
// them.
#ifndef FSDPC_COMPILER_SCHEDULE_COST_MODEL_H
#define FSDPC_COMPILER_SCHEDULE_COST_MODEL_H

#include <cstdint>

namespace fsdpc::schedule {

enum class ElementType { F32, BF16, F16 };
inline int64_t bytesOf(ElementType type) {
  return type == ElementType::F32 ? 4 : 2;
}

/// The machine of a rank. The defaults are a host core as measured for the
/// design (docs/rationale): oneDNN runs f32 gemms at 79 to 117 GF/s per core
/// and bf16 ones at 208 to 235 without AMX; a generated row kernel moves 9.5 to
/// 15 GB/s per thread; gathering 28 MB through a shared window takes 2.0 ms
/// with 2 ranks and 7.6 ms with 4, which is 7 and 2.8 GB/s received.
struct Machine {
  double f32Gflops = 80;           ///< 10⁹ flop/s per core, f32 gemm
  double bf16Gflops = 230;         ///< 10⁹ flop/s per core, bf16 gemm
  double memoryGBs = 10;           ///< 10⁹ bytes/s per core, read and written
  double collectiveGBs = 5;        ///< 10⁹ bytes/s that a rank receives
  double collectiveLatencyUs = 50; ///< µs per collective, of any size
  int cores = 1;                   ///< per rank (--plan-threads)
  int ranks = 8;                   ///< N (--plan-ranks)
  int ranksPerNode = 0;            ///< also the ranks of a shard group; 0: all
  double crossNodeGBs = 0; ///< 10⁹ bytes/s that a rank sends to other nodes;
                           ///< 0: as within its node
};

/// Returns the µs of a kernel that computes `flops` in `type` and moves
/// `bytes`: the slower of the two.
double rooflineUs(const Machine &machine, double flops, double bytes,
                  ElementType type);

/// Returns the µs of `batch` products (m×k)·(k×n), with operands and result in
/// `type`.
double gemmUs(const Machine &machine, int64_t m, int64_t n, int64_t k,
              ElementType type, int64_t batch = 1);

/// Returns the µs of a memory-bound kernel that reads and writes `bytes` in
/// total.
double elementwiseUs(const Machine &machine, double bytes);

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

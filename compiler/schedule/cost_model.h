// Durations of ops and collectives from flops and bytes: a roofline for
// compute, latency plus bandwidth for collectives. The numbers steer the
// prefetch solver and are printed beside its decisions; nothing else depends on
// them.
#ifndef FSDPC_COMPILER_SCHEDULE_COST_MODEL_H
#define FSDPC_COMPILER_SCHEDULE_COST_MODEL_H

#include <cstdint>

namespace fsdpc::schedule {

enum class ElementType { F32, BF16 };
inline int64_t bytesOf(ElementType type) {
  return type == ElementType::F32 ? 4 : 2;
}

/// What a rank runs on. Defaults are a host core as measured for
/// the design (docs/rationale): oneDNN runs f32 gemms at 79 to 117 GF/s and
/// bf16 ones at 208 to 235 a core without AMX; a generated row kernel moves 9.5
/// to 15 GB/s a thread; 28 MB are gathered through a shared window in 2.0 ms at
/// 2 ranks and 7.6 at 4, which is 7 and 2.8 GB/s received.
struct Machine {
  double f32Gflops = 80;           ///< 10⁹ flop/s a core, f32 gemm
  double bf16Gflops = 230;         ///< 10⁹ flop/s a core, bf16 gemm
  double memoryGBs = 10;           ///< 10⁹ bytes/s a core, read and written
  double collectiveGBs = 5;        ///< 10⁹ bytes/s that a rank receives
  double collectiveLatencyUs = 50; ///< µs a collective, whatever its size
  int cores = 1;                   ///< of a rank (--plan-threads)
  int ranks = 8;                   ///< N (--plan-ranks)
};

/// µs of a kernel that does `flops` in `type` and moves `bytes`: the slower of
/// the two.
double rooflineUs(const Machine &machine, double flops, double bytes,
                  ElementType type);

/// µs of `batch` products (m×k)·(k×n), operands and result in `type`.
double gemmUs(const Machine &machine, int64_t m, int64_t n, int64_t k,
              ElementType type, int64_t batch = 1);

/// µs of a kernel bound by memory: `bytes` read and written in all.
double elementwiseUs(const Machine &machine, double bytes);

/// µs of collectives on a whole buffer of `bytes` (all N shards, wire type).
/// A rank receives (N−1)/N of it, in an all-reduce twice that; with one rank
/// nothing is sent and it takes no time.
double allGatherUs(const Machine &machine, int64_t bytes);
double reduceScatterUs(const Machine &machine, int64_t bytes);
double allReduceUs(const Machine &machine, int64_t bytes);

} // namespace fsdpc::schedule

#endif // FSDPC_COMPILER_SCHEDULE_COST_MODEL_H

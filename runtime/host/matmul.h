// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A matrix product of the manifest on the host: a grid of single-threaded
// products that depends on the shape alone, dealt to the compute threads. So
// the number of threads changes no bit.
#pragma once

#include "runtime/abi/host_products.h"
#include "runtime/abi/manifest.h"
#include "runtime/host/gemm.h"
#include "runtime/host/thread_pool.h"
#include "runtime/support/status.h"

namespace fsdpc::runtime {

/// Scratch of the compute threads, `bytes` for each, one after the other. Owned
/// by the device.
struct Scratch {
  char *base = nullptr;
  size_t bytes = 0;
  void *of(int thread) const { return base + thread * bytes; }
};

class Matmul {
public:
  /// Prepares for a plan. Fails if it cannot be run. Call once.
  Status plan(const MatmulPlan &plan, GemmCache &cache);
  /// The same with a given grid, for measuring grids.
  Status plan(const MatmulPlan &plan, MatmulGrid grid, GemmCache &cache);
  /// Bytes that each thread needs.
  size_t scratchBytes() const;
  void prepare();
  /// Blocks until all is done. C is added to if the plan accumulates.
  void run(ThreadPool &pool, const Scratch &scratch, const void *a,
           const void *b, void *c) const;

private:
  /// A chunk of one batch entry. Offsets are in bytes.
  struct Chunk {
    std::shared_ptr<Gemm> gemm;
    int64_t a, b, c;
    int64_t readAhead; ///< bytes of the result to prefetch if they are added to
  };
  std::vector<Chunk> chunks;
  /// Per batch entry, the offsets of its three matrices in bytes.
  std::vector<int64_t> batchA, batchB, batchC;
  int64_t unitsPerPiece = 1; ///< small products are dealt in groups
};

} // namespace fsdpc::runtime

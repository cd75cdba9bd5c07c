// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention on the host, in blocks of queries: a product, the compiled row
// kernel, a product, all in scratch memory that fits the caches. The full
// matrix of scores never exists (Dao et al., FlashAttention, 2022). The blocks
// and the order of every sum follow from the plan alone, so the number of
// threads changes no bit.
#pragma once

#include "runtime/host/matmul.h"
#include "runtime/include/fsdpc.h"

namespace fsdpc::runtime {

class Attention {
public:
  /// Prepares for a plan. Fails if it cannot be run. Must be called once,
  /// before anything else.
  Status plan(const AttentionPlan &plan, GemmCache &cache);
  /// Bytes of scratch that each thread needs.
  size_t scratchBytes() const { return gemmScratch + size_t(cut.ownScratch()); }
  /// Creates the primitives, which takes milliseconds each; needed before `run`
  /// only.
  void prepare();
  /// Operands in the order of fsdpc_attention or fsdpc_attention_grad. Blocks
  /// until all is done. `rows` is the compiled row kernel of this plan.
  void run(ThreadPool &pool, const Scratch &scratch, fsdpc_kernel_body rows,
           void *const *operands) const;

private:
  /// A block of the cut with its products.
  struct Block : AttentionCut::Block {
    std::shared_ptr<Gemm> scores, output;         ///< forward
    std::shared_ptr<Gemm> dweights, dquery;       ///< backward
    std::shared_ptr<Gemm> dkey, dvalue;           ///< add to the sums
    std::shared_ptr<Gemm> firstDKey, firstDValue; ///< overwrite the sums
  };
  struct Operands;
  struct Work;

  Status planBlock(Block &block, GemmCache &cache);
  void runForward(const Operands &o, const Work &work, int64_t batch,
                  int64_t head, const Block &block) const;
  void runBackward(const Operands &o, const Work &work, int64_t batch,
                   int64_t group) const;
  Work workOf(const Scratch &scratch, int thread, fsdpc_kernel_body rows) const;
  /// Fills in the int64 operands of the row kernel (fsdpc.h) for a block.
  void describe(const Block &block, int64_t *numbers) const;

  AttentionCut cut;
  int64_t bytes = 4, maskBytes = 0; ///< per element
  std::vector<Block> blocks;
  std::vector<std::shared_ptr<Gemm>> gemms;
  size_t gemmScratch = 0;
};

} // namespace fsdpc::runtime

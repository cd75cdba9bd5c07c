// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention in blocks of 64 queries (attention.h). The forward pass deals
// (batch entry, head, block) to the threads. The backward pass deals (batch
// entry, key head): the sums of dkey and dvalue run over the query heads and
// blocks in a fixed order, and each belongs to one thread.
//
// host_attention.cpp cuts the queries into blocks. All products of the plan are
// made when the program starts; a thread's scratch holds the scores, weights
// and sums of one block.
#include "runtime/host/attention.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/core/plan_checks.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

namespace {

// Address of a head of a batch entry, given the strides of batch and head.
template <typename Byte>
Byte *at(Byte *base, const std::vector<int64_t> &strides, int64_t batch,
         int64_t head, int64_t bytes) {
  return base + (batch * strides[0] + head * strides[1]) * bytes;
}

} // namespace

// The operands by name; those below `grad` are set in the backward pass only.
// Null where the call has none: a mask is optional.
struct Attention::Operands {
  const char *query, *key, *value, *mask;
  char *output, *lse;
  const char *grad = nullptr;
  char *dquery = nullptr, *dkey = nullptr, *dvalue = nullptr;
};

// The scratch of one thread. Pointers into it; blocks of a thread follow each
// other, so one set serves all.
struct Attention::Work {
  int thread;
  fsdpc_kernel_body rows;
  char *gemm, *scores, *weights, *dweights, *dscores;
  float *sums[2]; // dkey and dvalue
};

Status Attention::plan(const AttentionPlan &plan, GemmCache &cache) {
  FSDPC_TRY(checkAttention(plan));
  auto found = cutAttention(plan);
  FSDPC_TRY(found);
  cut = std::move(*found);
  bytes = elementBytes(cut.type);
  maskBytes = dtypeBytes(plan.dtypeMask);
  for (const AttentionCut::Block &part : cut.blocks) {
    blocks.push_back({part, {}, {}, {}, {}, {}, {}, {}, {}});
    FSDPC_TRY(planBlock(blocks.back(), cache));
  }
  for (const std::shared_ptr<Gemm> &gemm : gemms)
    gemmScratch = std::max(gemmScratch, gemm->scratchBytes());
  gemmScratch = roundUp64(gemmScratch);
  return {};
}

Status Attention::planBlock(Block &block, GemmCache &cache) {
  auto get = [&](std::shared_ptr<Gemm> &gemm, GemmShape shape) -> Status {
    // Blocks of equal shape share a product.
    auto made = cache.get(shape);
    FSDPC_TRY(made);
    gemm = std::move(*made);
    gemms.push_back(gemm);
    return {};
  };
  FSDPC_TRY(get(block.scores, cut.scores(block)));
  if (!cut.plan.backward)
    return get(block.output, cut.output(block));
  FSDPC_TRY(get(block.dweights, cut.dweights(block)));
  FSDPC_TRY(get(block.dquery, cut.dquery(block)));
  FSDPC_TRY(get(block.dkey, cut.dkey(block, true)));
  FSDPC_TRY(get(block.dvalue, cut.dvalue(block, true)));
  // The backward pass runs the blocks from last to first.
  if (block.begin + block.rows != cut.plan.queries)
    return {};
  FSDPC_TRY(get(block.firstDKey, cut.dkey(block, false)));
  return get(block.firstDValue, cut.dvalue(block, false));
}

// Products that blocks share are prepared once; `prepare` of a Gemm may be
// called again.
void Attention::prepare() {
  for (const std::shared_ptr<Gemm> &gemm : gemms)
    gemm->prepare();
}

// {keys, row stride, keys that the first row sees under the causal mask, row
// stride of the mask}.
void Attention::describe(const Block &block, int64_t *numbers) const {
  numbers[0] = block.keys;
  numbers[1] = scoresStride(block.keys);
  numbers[2] = block.begin + 1 + cut.plan.keys - cut.plan.queries;
  numbers[3] = cut.plan.dtypeMask.empty() ? 0 : cut.plan.strideMask[2];
}

// The mask at the first query of a block, or null.
static void *maskAt(const AttentionPlan &p, const char *mask, int64_t batch,
                    int64_t head, int64_t query, int64_t bytes) {
  if (!mask)
    return nullptr;
  return const_cast<char *>(at(mask, p.strideMask, batch, head, bytes) +
                            query * p.strideMask[2] * bytes);
}

// One block of queries of one head. Each result row belongs to one block, so
// blocks run in any order.
void Attention::runForward(const Operands &o, const Work &work, int64_t batch,
                           int64_t head, const Block &block) const {
  // Query heads in sequence share a key head: the first heads / groups of them
  // the first one.
  int64_t group = head / (cut.plan.heads / cut.plan.groups);
  const char *query = at(o.query, cut.plan.strideQuery, batch, head, bytes) +
                      block.begin * cut.plan.strideQuery[2] * bytes;
  block.scores->run(work.thread, query,
                    at(o.key, cut.plan.strideKey, batch, group, bytes),
                    work.scores, work.gemm);
  int64_t row =
      (batch * cut.plan.heads + head) * cut.plan.queries + block.begin;
  int64_t numbers[4];
  describe(block, numbers);
  void *buffers[] = {
      work.scores, work.weights, o.lse + row * 4,
      maskAt(cut.plan, o.mask, batch, head, block.begin, maskBytes), numbers};
  work.rows(0, block.rows, buffers);
  block.output->run(work.thread, work.weights,
                    at(o.value, cut.plan.strideValue, batch, group, bytes),
                    at(o.output, cut.plan.strideOutput, batch, head, bytes) +
                        block.begin * cut.plan.strideOutput[2] * bytes,
                    work.gemm);
}

// All query heads and blocks that share one key head, on one thread.
void Attention::runBackward(const Operands &o, const Work &work, int64_t batch,
                            int64_t group) const {
  const char *key = at(o.key, cut.plan.strideKey, batch, group, bytes);
  const char *value = at(o.value, cut.plan.strideValue, batch, group, bytes);
  char *results[] = {at(o.dkey, cut.plan.strideDKey, batch, group, bytes),
                     at(o.dvalue, cut.plan.strideDValue, batch, group, bytes)};
  // f32 where the results are narrower, so that each is rounded once.
  void *dkey = cut.sumsApart ? work.sums[0] : static_cast<void *>(results[0]);
  void *dvalue = cut.sumsApart ? work.sums[1] : static_cast<void *>(results[1]);
  int64_t shared = cut.plan.heads / cut.plan.groups;
  for (int64_t head = group * shared; head < (group + 1) * shared; ++head)
    // From last to first: the last block sees every key, so it can overwrite
    // the sums and thereby initialise them.
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      auto rowsOf = [&](auto *tensor, const std::vector<int64_t> &strides) {
        return at(tensor, strides, batch, head, bytes) +
               block->begin * strides[2] * bytes;
      };
      const char *query = rowsOf(o.query, cut.plan.strideQuery);
      const char *grad = rowsOf(o.grad, cut.plan.strideGrad);
      // Scores are computed again instead of being kept from the forward pass;
      // with the lse the row kernel turns them into the same weights.
      block->scores->run(work.thread, query, key, work.scores, work.gemm);
      block->dweights->run(work.thread, grad, value, work.dweights, work.gemm);
      int64_t row =
          (batch * cut.plan.heads + head) * cut.plan.queries + block->begin;
      int64_t numbers[6];
      describe(*block, numbers);
      numbers[4] = cut.plan.strideGrad[2];
      numbers[5] = cut.plan.strideOutput[2];
      void *buffers[] = {
          work.scores,
          work.weights,
          o.lse + row * 4,
          maskAt(cut.plan, o.mask, batch, head, block->begin, maskBytes),
          work.dweights,
          work.dscores,
          const_cast<char *>(grad),
          rowsOf(o.output, cut.plan.strideOutput),
          numbers};
      work.rows(0, block->rows, buffers);
      // The first products for this key head overwrite the sums.
      bool begins = block == blocks.rbegin() && head == group * shared;
      (begins ? block->firstDValue : block->dvalue)
          ->run(work.thread, work.weights, grad, dvalue, work.gemm);
      (begins ? block->firstDKey : block->dkey)
          ->run(work.thread, work.dscores, query, dkey, work.gemm);
      block->dquery->run(work.thread, work.dscores, key,
                         rowsOf(o.dquery, cut.plan.strideDQuery), work.gemm);
    }
  if (!cut.sumsApart)
    return;
  // Writes the f32 sums to the results, in the plan's cut.type and with its
  // stride.
  auto round = [&](const float *sum, char *result, int64_t width,
                   int64_t stride) {
    for (int64_t row = 0; row < cut.plan.keys; ++row) {
      char *to = result + row * stride * bytes;
      const float *from = sum + row * width;
      if (cut.type == ElementType::f32)
        memcpy(to, from, width * sizeof(float));
      else
        roundFloats(from, width, cut.type, to);
    }
  };
  round(work.sums[0], results[0], cut.plan.width, cut.plan.strideDKey[2]);
  round(work.sums[1], results[1], cut.plan.valueWidth,
        cut.plan.strideDValue[2]);
}

// Cuts a thread's scratch: product | scores | dweights | weights | dscores |
// sums. If the plan's cut.type is f32, weights and dscores share memory with
// scores and dweights.
Attention::Work Attention::workOf(const Scratch &scratch, int thread,
                                  fsdpc_kernel_body rows) const {
  Work work;
  work.thread = thread;
  work.rows = rows;
  work.gemm = static_cast<char *>(scratch.of(thread));
  work.scores = work.gemm + gemmScratch;
  work.dweights = work.scores + cut.scoresBytes;
  char *free =
      cut.plan.backward ? work.dweights + cut.scoresBytes : work.dweights;
  work.weights = cut.weightsBytes ? free : work.scores;
  work.dscores = cut.weightsBytes ? free + cut.weightsBytes : work.dweights;
  free += (cut.plan.backward ? 2 : 1) * cut.weightsBytes;
  work.sums[0] = reinterpret_cast<float *>(free);
  work.sums[1] = reinterpret_cast<float *>(free + cut.sumBytes[0]);
  return work;
}

void Attention::run(ThreadPool &pool, const Scratch &scratch,
                    fsdpc_kernel_body rows, void *const *operands) const {
  auto operand = [&](int i) { return static_cast<char *>(operands[i]); };
  if (!cut.plan.backward) {
    Operands o{operand(0), operand(1), operand(2),
               operand(3), operand(4), operand(5)};
    int64_t count = blocks.size();
    pool.run(cut.plan.batch * cut.plan.heads * count, [&](int64_t piece,
                                                          int thread) {
      int64_t entry = piece / count;
      runForward(o, workOf(scratch, thread, rows), entry / cut.plan.heads,
                 entry % cut.plan.heads, blocks[piece % count]);
    });
    return;
  }
  // fsdpc_attention_grad lists grad first, and the mask after the lse.
  Operands o{operand(1), operand(2), operand(3), operand(6), operand(4),
             operand(5), operand(0), operand(7), operand(8), operand(9)};
  pool.run(cut.plan.batch * cut.plan.groups, [&](int64_t piece, int thread) {
    runBackward(o, workOf(scratch, thread, rows), piece / cut.plan.groups,
                piece % cut.plan.groups);
  });
}

} // namespace fsdpc::runtime

// Attention in blocks of 64 queries (attention.h). The forward pass deals
// (batch entry, head, block) to the threads. The backward pass deals (batch
// entry, key head): the sums of dkey and dvalue run over the query heads and
// blocks in a fixed order, and each belongs to one thread.
//
// All products of the plan are made when the program starts; a thread's scratch
// holds the scores, weights and sums of one block.
#include "runtime/host/attention.h"
#include "runtime/core/plan_checks.h"
#include "shared/memory_plan.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

namespace {

// Part of the numerics: the blocks fix the order of the backward sums.
constexpr int64_t blockRows = 64;

int64_t roundUp(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

// Row stride of a block's scores and weights, in elements: a multiple of 16, so
// that rows begin at vector boundaries.
int64_t rowStride(int64_t keys) { return roundUp(keys, 16); }

// Address of a head of a batch entry, given the strides of batch and head.
template <typename Byte>
Byte *at(Byte *base, const std::vector<int64_t> &strides, int64_t batch,
         int64_t head, int64_t bytes) {
  return base + (batch * strides[0] + head * strides[1]) * bytes;
}

} // namespace

// The operands by name; those below `grad` are set in the backward pass only.
struct Attention::Operands {
  const char *query, *key, *value, *mask;
  char *output, *lse;
  const char *grad = nullptr;
  char *dquery = nullptr, *dkey = nullptr, *dvalue = nullptr;
};

// The scratch of one thread.
struct Attention::Work {
  int thread;
  fsdpc_kernel_body rows;
  char *gemm, *scores, *weights, *dweights, *dscores;
  float *sums[2]; // dkey and dvalue
};

// Cuts the queries into blocks. With a causal mask a block computes only with
// the keys that its last row sees, rounded up to whole vectors.
Status Attention::plan(const AttentionPlan &plan, GemmCache &cache) {
  p = plan;
  FSDPC_TRY(checkAttention(p));
  parseElementType(p.dtype, type);
  bytes = elementBytes(type);
  maskBytes = dtypeBytes(p.dtypeMask);
  sumsApart =
      p.backward && (type != ElementType::f32 || p.strideDKey[2] != p.width ||
                     p.strideDValue[2] != p.valueWidth);
  for (int64_t begin = 0; begin < p.queries; begin += blockRows) {
    Block block;
    block.begin = begin;
    block.rows = std::min(blockRows, p.queries - begin);
    int64_t seen = begin + block.rows + p.keys - p.queries;
    // A block whose rows see no key is computed with one key, whose weights the
    // row kernel writes as zero.
    block.keys =
        p.causal ? std::clamp<int64_t>(rowStride(seen), 1, p.keys) : p.keys;
    FSDPC_TRY(planBlock(block, cache));
    blocks.push_back(block);
  }
  for (const std::shared_ptr<Gemm> &gemm : gemms)
    gemmScratch = std::max(gemmScratch, gemm->scratchBytes());
  gemmScratch = roundUp(gemmScratch, 64);
  // The largest block, since the scratch serves all of them.
  int64_t cells = std::min(blockRows, p.queries) * rowStride(p.keys);
  scoresBytes = cells * 4;
  weightsBytes = type == ElementType::f32 ? 0 : roundUp(cells * bytes, 64);
  if (sumsApart) {
    sumBytes[0] = roundUp(p.keys * p.width * 4, 64);
    sumBytes[1] = roundUp(p.keys * p.valueWidth * 4, 64);
  }
  ownScratch = (p.backward ? 2 : 1) * (scoresBytes + weightsBytes) +
               sumBytes[0] + sumBytes[1];
  return {};
}

// Makes the products of one block. With a causal mask blocks differ in their
// number of keys, so each has its own.
Status Attention::planBlock(Block &block, GemmCache &cache) {
  int64_t stride = rowStride(block.keys);
  auto get = [&](std::shared_ptr<Gemm> &gemm, GemmShape shape) -> Status {
    auto made = cache.get(shape);
    FSDPC_TRY(made);
    gemm = std::move(*made);
    gemms.push_back(gemm);
    return {};
  };
  // Shape of: rows of a tensor times keys (or values), transposed. Gives
  // scores.
  auto byKeys = [&](int64_t rowA, int64_t rowB, int64_t k) {
    return GemmShape{block.rows, block.keys, k,      rowA, 1,
                     1,          rowB,       stride, type, type};
  };
  // Shape of: weights times keys (or values).
  auto ofKeys = [&](int64_t rowB, int64_t n, int64_t rowC) {
    return GemmShape{block.rows, n,    block.keys, stride, 1,   rowB,
                     1,          rowC, type,       type,   type};
  };
  // Shape of: transposed weights times rows of the block. Overwrites a sum, or
  // adds to it.
  auto toKeys = [&](int64_t rowB, int64_t n, int64_t rowC, bool add) {
    return GemmShape{block.keys,
                     n,
                     block.rows,
                     1,
                     stride,
                     rowB,
                     1,
                     sumsApart ? n : rowC,
                     type,
                     type,
                     ElementType::f32,
                     add};
  };
  FSDPC_TRY(
      get(block.scores, byKeys(p.strideQuery[2], p.strideKey[2], p.width)));
  if (!p.backward)
    return get(block.output,
               ofKeys(p.strideValue[2], p.valueWidth, p.strideOutput[2]));
  // The backward pass runs the blocks from last to first.
  bool first = block.begin + block.rows == p.queries;
  auto dkey = [&](bool add) {
    return toKeys(p.strideQuery[2], p.width, p.strideDKey[2], add);
  };
  auto dvalue = [&](bool add) {
    return toKeys(p.strideGrad[2], p.valueWidth, p.strideDValue[2], add);
  };
  FSDPC_TRY(get(block.dweights,
                byKeys(p.strideGrad[2], p.strideValue[2], p.valueWidth)));
  FSDPC_TRY(
      get(block.dquery, ofKeys(p.strideKey[2], p.width, p.strideDQuery[2])));
  FSDPC_TRY(get(block.dkey, dkey(true)));
  FSDPC_TRY(get(block.dvalue, dvalue(true)));
  if (!first)
    return {};
  FSDPC_TRY(get(block.firstDKey, dkey(false)));
  return get(block.firstDValue, dvalue(false));
}

void Attention::prepare() {
  for (const std::shared_ptr<Gemm> &gemm : gemms)
    gemm->prepare();
}

// {keys, row stride, keys that the first row sees under the causal mask, row
// stride of the mask}.
void Attention::describe(const Block &block, int64_t *numbers) const {
  numbers[0] = block.keys;
  numbers[1] = rowStride(block.keys);
  numbers[2] = block.begin + 1 + p.keys - p.queries;
  numbers[3] = p.dtypeMask.empty() ? 0 : p.strideMask[2];
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
  int64_t group = head / (p.heads / p.groups);
  const char *query = at(o.query, p.strideQuery, batch, head, bytes) +
                      block.begin * p.strideQuery[2] * bytes;
  block.scores->run(work.thread, query,
                    at(o.key, p.strideKey, batch, group, bytes), work.scores,
                    work.gemm);
  int64_t row = (batch * p.heads + head) * p.queries + block.begin;
  int64_t numbers[4];
  describe(block, numbers);
  void *buffers[] = {work.scores, work.weights, o.lse + row * 4,
                     maskAt(p, o.mask, batch, head, block.begin, maskBytes),
                     numbers};
  work.rows(0, block.rows, buffers);
  block.output->run(work.thread, work.weights,
                    at(o.value, p.strideValue, batch, group, bytes),
                    at(o.output, p.strideOutput, batch, head, bytes) +
                        block.begin * p.strideOutput[2] * bytes,
                    work.gemm);
}

// All query heads and blocks that share one key head, on one thread.
void Attention::runBackward(const Operands &o, const Work &work, int64_t batch,
                            int64_t group) const {
  const char *key = at(o.key, p.strideKey, batch, group, bytes);
  const char *value = at(o.value, p.strideValue, batch, group, bytes);
  char *results[] = {at(o.dkey, p.strideDKey, batch, group, bytes),
                     at(o.dvalue, p.strideDValue, batch, group, bytes)};
  void *dkey = sumsApart ? work.sums[0] : static_cast<void *>(results[0]);
  void *dvalue = sumsApart ? work.sums[1] : static_cast<void *>(results[1]);
  int64_t shared = p.heads / p.groups;
  for (int64_t head = group * shared; head < (group + 1) * shared; ++head)
    // From last to first: the last block sees every key, so it can overwrite
    // the sums and thereby initialise them.
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
      auto rowsOf = [&](auto *tensor, const std::vector<int64_t> &strides) {
        return at(tensor, strides, batch, head, bytes) +
               block->begin * strides[2] * bytes;
      };
      const char *query = rowsOf(o.query, p.strideQuery);
      const char *grad = rowsOf(o.grad, p.strideGrad);
      // Scores are computed again instead of being kept from the forward pass;
      // with the lse the row kernel turns them into the same weights.
      block->scores->run(work.thread, query, key, work.scores, work.gemm);
      block->dweights->run(work.thread, grad, value, work.dweights, work.gemm);
      int64_t row = (batch * p.heads + head) * p.queries + block->begin;
      int64_t numbers[6];
      describe(*block, numbers);
      numbers[4] = p.strideGrad[2];
      numbers[5] = p.strideOutput[2];
      void *buffers[] = {
          work.scores,
          work.weights,
          o.lse + row * 4,
          maskAt(p, o.mask, batch, head, block->begin, maskBytes),
          work.dweights,
          work.dscores,
          const_cast<char *>(grad),
          rowsOf(o.output, p.strideOutput),
          numbers};
      work.rows(0, block->rows, buffers);
      // The first products for this key head overwrite the sums.
      bool begins = block == blocks.rbegin() && head == group * shared;
      (begins ? block->firstDValue : block->dvalue)
          ->run(work.thread, work.weights, grad, dvalue, work.gemm);
      (begins ? block->firstDKey : block->dkey)
          ->run(work.thread, work.dscores, query, dkey, work.gemm);
      block->dquery->run(work.thread, work.dscores, key,
                         rowsOf(o.dquery, p.strideDQuery), work.gemm);
    }
  if (!sumsApart)
    return;
  // Writes the f32 sums to the results, in the plan's type and with its stride.
  auto round = [&](const float *sum, char *result, int64_t width,
                   int64_t stride) {
    for (int64_t row = 0; row < p.keys; ++row) {
      char *to = result + row * stride * bytes;
      const float *from = sum + row * width;
      if (type == ElementType::f32)
        memcpy(to, from, width * sizeof(float));
      else
        roundFloats(from, width, type, to);
    }
  };
  round(work.sums[0], results[0], p.width, p.strideDKey[2]);
  round(work.sums[1], results[1], p.valueWidth, p.strideDValue[2]);
}

// Cuts a thread's scratch: product | scores | dweights | weights | dscores |
// sums. If the plan's type is f32, weights and dscores share memory with scores
// and dweights.
Attention::Work Attention::workOf(const Scratch &scratch, int thread,
                                  fsdpc_kernel_body rows) const {
  Work work;
  work.thread = thread;
  work.rows = rows;
  work.gemm = static_cast<char *>(scratch.of(thread));
  work.scores = work.gemm + gemmScratch;
  work.dweights = work.scores + scoresBytes;
  char *free = p.backward ? work.dweights + scoresBytes : work.dweights;
  work.weights = weightsBytes ? free : work.scores;
  work.dscores = weightsBytes ? free + weightsBytes : work.dweights;
  free += (p.backward ? 2 : 1) * weightsBytes;
  work.sums[0] = reinterpret_cast<float *>(free);
  work.sums[1] = reinterpret_cast<float *>(free + sumBytes[0]);
  return work;
}

void Attention::run(ThreadPool &pool, const Scratch &scratch,
                    fsdpc_kernel_body rows, void *const *operands) const {
  auto operand = [&](int i) { return static_cast<char *>(operands[i]); };
  if (!p.backward) {
    Operands o{operand(0), operand(1), operand(2),
               operand(3), operand(4), operand(5)};
    int64_t count = blocks.size();
    pool.run(p.batch * p.heads * count, [&](int64_t piece, int thread) {
      int64_t entry = piece / count;
      runForward(o, workOf(scratch, thread, rows), entry / p.heads,
                 entry % p.heads, blocks[piece % count]);
    });
    return;
  }
  // fsdpc_attention_grad lists grad first, and the mask after the lse.
  Operands o{operand(1), operand(2), operand(3), operand(6), operand(4),
             operand(5), operand(0), operand(7), operand(8), operand(9)};
  pool.run(p.batch * p.groups, [&](int64_t piece, int thread) {
    runBackward(o, workOf(scratch, thread, rows), piece / p.groups,
                piece % p.groups);
  });
}

} // namespace fsdpc::runtime

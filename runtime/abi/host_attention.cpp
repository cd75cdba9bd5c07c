// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The cuts of attention on the host (host_products.h): blocks of 64 queries,
// each with products of its own, since a causal mask leaves the blocks
// different numbers of keys.
#include "runtime/abi/host_products.h"
#include "runtime/support/round_up.h"

#include <algorithm>

namespace fsdpc {

namespace {

// Part of the numerics: the blocks fix the order of the backward sums.
constexpr int64_t blockRows = 64;

// Rows of a tensor times keys (or values), transposed. Gives scores.
GemmShape byKeys(const AttentionCut &c, const AttentionCut::Block &block,
                 int64_t rowA, int64_t rowB, int64_t k) {
  return GemmShape{block.rows, block.keys, k,    rowA,
                   1,          1,          rowB, scoresStride(block.keys),
                   c.type,     c.type};
}

// Weights times keys (or values).
GemmShape ofKeys(const AttentionCut &c, const AttentionCut::Block &block,
                 int64_t rowB, int64_t n, int64_t rowC) {
  return GemmShape{block.rows, n,      block.keys, scoresStride(block.keys),
                   1,          rowB,   1,          rowC,
                   c.type,     c.type, c.type};
}

// Transposed weights times rows of the block. Overwrites a sum, or adds to it.
GemmShape toKeys(const AttentionCut &c, const AttentionCut::Block &block,
                 int64_t rowB, int64_t n, int64_t rowC, bool add) {
  return GemmShape{block.keys,
                   n,
                   block.rows,
                   1,
                   scoresStride(block.keys),
                   rowB,
                   1,
                   c.sumsApart ? n : rowC,
                   c.type,
                   c.type,
                   ElementType::f32,
                   add};
}

} // namespace

// Cuts the queries into blocks. With a causal mask a block computes only with
// the keys that its last row sees, rounded up to whole vectors.
Result<AttentionCut> cutAttention(const AttentionPlan &p) {
  AttentionCut c;
  c.plan = p;
  if (!parseElementType(p.dtype, c.type))
    return inputError("attention of type '" + p.dtype + "' is not supported");
  bool isF32 = c.type == ElementType::f32;
  c.sumsApart = p.backward && (!isF32 || p.strideDKey[2] != p.width ||
                               p.strideDValue[2] != p.valueWidth);
  for (int64_t begin = 0; begin < p.queries; begin += blockRows) {
    int64_t rows = std::min(blockRows, p.queries - begin);
    int64_t seen = begin + rows + p.keys - p.queries;
    // A block whose rows see no key is computed with one key, whose weights the
    // row kernel writes as zero.
    c.blocks.push_back({begin, rows,
                        p.causal
                            ? std::clamp<int64_t>(scoresStride(seen), 1, p.keys)
                            : p.keys});
  }
  // The largest block, since the scratch serves all of them.
  int64_t cells = std::min(blockRows, p.queries) * scoresStride(p.keys);
  c.scoresBytes = cells * 4;
  c.weightsBytes = isF32 ? 0 : roundUp64(cells * elementBytes(c.type));
  if (c.sumsApart) {
    c.sumBytes[0] = roundUp64(p.keys * p.width * 4);
    c.sumBytes[1] = roundUp64(p.keys * p.valueWidth * 4);
  }
  return c;
}

GemmShape AttentionCut::scores(const Block &block) const {
  return byKeys(*this, block, plan.strideQuery[2], plan.strideKey[2],
                plan.width);
}
GemmShape AttentionCut::output(const Block &block) const {
  return ofKeys(*this, block, plan.strideValue[2], plan.valueWidth,
                plan.strideOutput[2]);
}
GemmShape AttentionCut::dweights(const Block &block) const {
  return byKeys(*this, block, plan.strideGrad[2], plan.strideValue[2],
                plan.valueWidth);
}
GemmShape AttentionCut::dquery(const Block &block) const {
  return ofKeys(*this, block, plan.strideKey[2], plan.width,
                plan.strideDQuery[2]);
}
GemmShape AttentionCut::dkey(const Block &block, bool add) const {
  return toKeys(*this, block, plan.strideQuery[2], plan.width,
                plan.strideDKey[2], add);
}
GemmShape AttentionCut::dvalue(const Block &block, bool add) const {
  return toKeys(*this, block, plan.strideGrad[2], plan.valueWidth,
                plan.strideDValue[2], add);
}

} // namespace fsdpc

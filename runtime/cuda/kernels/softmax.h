// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of attention between its products, for plans that no library takes:
// the softmax of a row of scores, and its gradient. One block of threads works
// on one row. The meaning is that of the row kernel compiled for the host
// (fsdpc.h): a key that a row does not see has weight 0, and a row that sees no
// key has only zeroes.
#pragma once

#include "runtime/abi/attention_lse.h"
#include "runtime/cuda/kernels/elements.h"
#include "runtime/cuda/kernels/grid.h"

#include <cfloat>
#include <cmath>

namespace fsdpc::runtime {

/// A mask keeps keys, or is of values that are added to the scores.
enum class MaskType { none, keep, added };

/// The rows of `heads` heads from `firstHead` on, where heads are counted over
/// the whole batch. Matrices are dense, queries × keys per head.
struct SoftmaxRows {
  float *scores = nullptr;
  void *weights = nullptr; ///< in the plan's type; f32 may alias the scores
  float *lse = nullptr;    ///< of all heads of the whole batch
  const void *mask = nullptr;
  int64_t maskStrides[4] = {}; ///< of batch, head, query, key
  MaskType maskType = MaskType::none;
  WireType addedType = WireType::f32;
  WireType type = WireType::f32;
  bool causal = false;
  float scale = 1;
  int64_t headsOfBatch = 1, firstHead = 0, heads = 0, queries = 0, keys = 0;
};

/// The same rows with the operands of the gradient.
struct SoftmaxGradRows {
  SoftmaxRows rows;
  const float *dweights = nullptr;
  void *dscores = nullptr; ///< in the plan's type; f32 may alias dweights
  const void *grad = nullptr, *output = nullptr;
  int64_t gradStrides[3] = {}, outputStrides[3] = {}; ///< batch, head, row
  int64_t valueWidth = 0;
};

/// Row `index` of a launch: its place, and how many keys it sees. `seen` keys,
/// from the first on: what the causal mask leaves.
struct SoftmaxRow {
  int64_t batch, head, query, seen;
  FSDPC_SHARED SoftmaxRow(const SoftmaxRows &s, int64_t index) {
    int64_t place = s.firstHead + index / s.queries;
    batch = place / s.headsOfBatch;
    head = place % s.headsOfBatch;
    query = index % s.queries;
    seen = s.keys;
    // Queries are aligned with the last keys (bottom right), so the last query
    // sees all keys.
    if (s.causal && query + s.keys - s.queries + 1 < seen)
      seen = query + s.keys - s.queries + 1;
    seen = seen > 0 ? seen : 0;
  }
  FSDPC_SHARED int64_t at(const int64_t *strides) const {
    return batch * strides[0] + head * strides[1] + query * strides[2];
  }
};

/// Scales and masks the score of one key.
FSDPC_SHARED inline float scoreOf(const SoftmaxRows &s, const SoftmaxRow &row,
                                  float product, int64_t key) {
  float score = product * s.scale;
  if (s.maskType == MaskType::none)
    return score;
  int64_t place = row.at(s.maskStrides) + key * s.maskStrides[3];
  if (s.maskType == MaskType::keep)
    return static_cast<const uint8_t *>(s.mask)[place] ? score
                                                       : -float(INFINITY);
  return score + load(s.mask, s.addedType, place);
}

/// Three passes over a row: the largest score, the sum of exponentials, the
/// weights. Scores are overwritten by their exponentials in between, so each is
/// computed once.
FSDPC_SHARED inline void body(const Grid &grid, const SoftmaxRows &s) {
  for (int64_t r = grid.block; r < s.heads * s.queries; r += grid.blocks) {
    SoftmaxRow row(s, r);
    float *scores = s.scores + r * s.keys;
    // Not minus infinity: a row whose keys are all masked then gives exp(-inf)
    // = 0 instead of exp(-inf + inf) = NaN.
    float largest = -FLT_MAX;
    for (int64_t key = grid.thread; key < row.seen; key += grid.threads)
      largest = fmaxf(largest, scores[key] = scoreOf(s, row, scores[key], key));
    largest =
        grid.reduce(largest, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
    for (int64_t key = grid.thread; key < row.seen; key += grid.threads)
      sum += scores[key] = expf(scores[key] - largest);
    sum = grid.sum(sum);
    // Minus infinity if the row sees no key.
    if (grid.thread == 0)
      s.lse[s.firstHead * s.queries + r] = largest + logf(sum);
    // A row that sees no key has sum 0; the bound makes its weights 0, not NaN.
    float factor = 1 / fmaxf(sum, FLT_MIN);
    for (int64_t key = grid.thread; key < s.keys; key += grid.threads)
      store(s.weights, s.type, r * s.keys + key,
            key < row.seen ? scores[key] * factor : 0.0f);
  }
}

/// dscore = weight · (dweight - dot) · scale, where dot = grad · output is the
/// sum of weight · dweight over the row. The weights are recomputed from the
/// log-sum-exp, so the forward pass need not keep them, and add up to 1 where
/// its rounding would show (attention_lse.h).
FSDPC_SHARED inline void body(const Grid &grid, const SoftmaxGradRows &g) {
  const SoftmaxRows &s = g.rows;
  for (int64_t r = grid.block; r < s.heads * s.queries; r += grid.blocks) {
    SoftmaxRow row(s, r);
    int64_t grad = row.at(g.gradStrides), output = row.at(g.outputStrides);
    float dot = 0;
    for (int64_t j = grid.thread; j < g.valueWidth; j += grid.threads)
      dot +=
          load(g.grad, s.type, grad + j) * load(g.output, s.type, output + j);
    dot = grid.sum(dot);
    // As in the forward pass: a row that sees no key has minus infinity here.
    float lse = fmaxf(s.lse[s.firstHead * s.queries + r], -FLT_MAX);
    float factor = 1;
    if (fabsf(lse) > attentionExactLse) {
      float sum = 0;
      for (int64_t key = grid.thread; key < row.seen; key += grid.threads)
        sum += expf(scoreOf(s, row, s.scores[r * s.keys + key], key) - lse);
      factor = 1 / fmaxf(grid.sum(sum), FLT_MIN);
    }
    for (int64_t key = grid.thread; key < s.keys; key += grid.threads) {
      int64_t i = r * s.keys + key;
      float weight = 0, dscore = 0;
      if (key < row.seen) {
        weight = expf(scoreOf(s, row, s.scores[i], key) - lse) * factor;
        dscore = weight * (g.dweights[i] - dot) * s.scale;
      }
      store(s.weights, s.type, i, weight);
      store(g.dscores, s.type, i, dscore);
    }
  }
}

} // namespace fsdpc::runtime

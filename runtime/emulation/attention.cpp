// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention as defined: scores, softmax, weighted sum, and the gradient by the
// chain rule. Weights and dscores are rounded to the plan's type as cuDNN's
// fused kernels do; sums are f32. dkey and dvalue are summed over the query
// heads of a key head before they are rounded.
#include "runtime/emulation/attention.h"
#include "runtime/emulation/gemm.h"
#include "runtime/emulation/values.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace fsdpc::runtime::emulation {

namespace {

using Strides = std::vector<int64_t>;
using Rows = std::vector<float>; // a dense matrix

constexpr float infinity = std::numeric_limits<float>::infinity();

// One query head of one batch entry, and the matrices that belong to it.
// Operands are those of the whole batch; this picks the head's rows.
struct Head {
  const AttentionPlan &p;
  int64_t batch, head;

  int64_t group() const { return head / (p.heads / p.groups); }
  // The rows of one head of an operand. `which` is a query head or a key head.
  Matrix of(const void *operand, const Strides &strides, int64_t which) const {
    return {at(operand, p.dtype, batch * strides[0] + which * strides[1]),
            p.dtype, strides[2], 1};
  }
  Matrix ofQuery(const void *operand, const Strides &strides) const {
    return of(operand, strides, head);
  }
  Matrix ofKey(const void *operand, const Strides &strides) const {
    return of(operand, strides, group());
  }
};

Matrix transposed(Matrix matrix) {
  std::swap(matrix.row, matrix.column);
  return matrix;
}

Matrix dense(const Rows &rows, int64_t width) {
  return {rows.data(), "f32", width, 1};
}

// Returns A · B as a dense matrix. m × n, of an m × k and a k × n matrix.
Rows product(int64_t m, int64_t n, int64_t k, const Matrix &a,
             const Matrix &b) {
  Rows result(m * n);
  multiply({m, n, k, a, b, result.data(), "f32", n});
  return result;
}

// The same, added to `sum`, which has m × n elements.
void addProduct(int64_t m, int64_t n, int64_t k, const Matrix &a,
                const Matrix &b, Rows &sum) {
  multiply({m, n, k, a, b, sum.data(), "f32", n, sum.data()});
}

// Rounds dense rows to the plan's type and stores them as the rows of one head
// of an operand.
void storeRows(const Rows &rows, int64_t count, int64_t width,
               const AttentionPlan &p, void *operand, const Strides &strides,
               int64_t batch, int64_t which) {
  int64_t first = batch * strides[0] + which * strides[1];
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < width; ++j)
      storeValue(rows[i * width + j], operand, p.dtype,
                 first + i * strides[2] + j);
}

// Returns what the mask adds to a score.
float maskAt(const Head &h, const void *mask, int64_t query, int64_t key) {
  if (h.p.dtypeMask.empty())
    return 0;
  const Strides &s = h.p.strideMask;
  int64_t element = h.batch * s[0] + h.head * s[1] + query * s[2] + key * s[3];
  if (h.p.dtypeMask == "i1")
    return static_cast<const char *>(mask)[element] ? 0 : -infinity;
  return loadValue(mask, h.p.dtypeMask, element);
}

// Scaled and masked scores. Keys that a row does not see have minus infinity.
Rows scoresOf(const Head &h, const void *query, const void *key,
              const void *mask) {
  const AttentionPlan &p = h.p;
  Rows scores =
      product(p.queries, p.keys, p.width, h.ofQuery(query, p.strideQuery),
              transposed(h.ofKey(key, p.strideKey)));
  for (int64_t i = 0; i < p.queries; ++i) {
    // Queries are aligned with the last keys: the last query sees all of them.
    int64_t seen =
        p.causal ? std::clamp<int64_t>(i + 1 + p.keys - p.queries, 0, p.keys)
                 : p.keys;
    float *row = scores.data() + i * p.keys;
    // The mask comes after the scale, which does not apply to it.
    for (int64_t j = 0; j < seen; ++j)
      row[j] = row[j] * float(p.scale) + maskAt(h, mask, i, j);
    std::fill(row + seen, row + p.keys, -infinity);
  }
  return scores;
}

// Turns scores into weights, rounded to the plan's type.
void weigh(const AttentionPlan &p, const float *lse, Rows &scores) {
  for (int64_t i = 0; i < p.queries; ++i)
    for (int64_t j = 0; j < p.keys; ++j) {
      float &cell = scores[i * p.keys + j];
      // Not exp(-inf - lse), which is NaN in a row that sees no key: its lse is
      // minus infinity too.
      cell = cell == -infinity ? 0 : rounded(std::exp(cell - lse[i]), p.dtype);
    }
}

void forward(const Head &h, const void *const *operands) {
  const AttentionPlan &p = h.p;
  Rows scores = scoresOf(h, operands[0], operands[1], operands[3]);
  // One number per query of the head; dense, whatever the strides of the
  // output.
  float *lse = static_cast<float *>(const_cast<void *>(operands[5])) +
               (h.batch * p.heads + h.head) * p.queries;
  for (int64_t i = 0; i < p.queries; ++i) {
    const float *row = scores.data() + i * p.keys;
    // Subtracting the maximum makes the largest term 1. The test avoids NaN in
    // a row of minus infinities.
    float most = *std::max_element(row, row + p.keys);
    float sum = 0;
    for (int64_t j = 0; j < p.keys; ++j)
      sum += row[j] == -infinity ? 0 : std::exp(row[j] - most);
    lse[i] = sum == 0 ? -infinity : most + std::log(sum);
  }
  weigh(p, lse, scores);
  storeRows(product(p.queries, p.valueWidth, p.keys, dense(scores, p.keys),
                    h.ofKey(operands[2], p.strideValue)),
            p.queries, p.valueWidth, p, const_cast<void *>(operands[4]),
            p.strideOutput, h.batch, h.head);
}

// Adds the head's contribution to the cotangents of its group's keys and
// values.
void backward(const Head &h, const void *const *operands, Rows &dkey,
              Rows &dvalue) {
  const AttentionPlan &p = h.p;
  Matrix grad = h.ofQuery(operands[0], p.strideGrad);
  Matrix query = h.ofQuery(operands[1], p.strideQuery);
  Matrix key = h.ofKey(operands[2], p.strideKey);
  Matrix output = h.ofQuery(operands[4], p.strideOutput);
  const float *lse = static_cast<const float *>(operands[5]) +
                     (h.batch * p.heads + h.head) * p.queries;
  // Recomputed from the log-sum-exp, as flash attention does.
  Rows weights = scoresOf(h, operands[1], operands[2], operands[6]);
  weigh(p, lse, weights);
  Rows dscores = product(p.queries, p.keys, p.valueWidth, grad,
                         transposed(h.ofKey(operands[3], p.strideValue)));
  for (int64_t i = 0; i < p.queries; ++i) {
    // grad · output equals the sum of weight · dweight over the row, so the
    // softmax gradient needs one number per row.
    float dot = 0;
    for (int64_t j = 0; j < p.valueWidth; ++j)
      dot += loadValue(grad.values, p.dtype, i * grad.row + j) *
             loadValue(output.values, p.dtype, i * output.row + j);
    for (int64_t j = 0; j < p.keys; ++j) {
      float &cell = dscores[i * p.keys + j];
      // The scale belongs to the scores, so their gradient takes it once more.
      cell = rounded(weights[i * p.keys + j] * (cell - dot) * float(p.scale),
                     p.dtype);
    }
  }
  // dvalue += weightsᵀ · grad and dkey += dscoresᵀ · query, in f32 over the
  // heads of the group.
  addProduct(p.keys, p.valueWidth, p.queries,
             transposed(dense(weights, p.keys)), grad, dvalue);
  addProduct(p.keys, p.width, p.queries, transposed(dense(dscores, p.keys)),
             query, dkey);
  storeRows(product(p.queries, p.width, p.keys, dense(dscores, p.keys), key),
            p.queries, p.width, p, const_cast<void *>(operands[7]),
            p.strideDQuery, h.batch, h.head);
}

} // namespace

void attend(const AttentionPlan &p, const void *const *operands) {
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    if (!p.backward) {
      for (int64_t head = 0; head < p.heads; ++head)
        forward({p, batch, head}, operands);
      continue;
    }
    // Grouped-query attention: consecutive query heads share a key head.
    int64_t shared = p.heads / p.groups;
    for (int64_t group = 0; group < p.groups; ++group) {
      Rows dkey(p.keys * p.width), dvalue(p.keys * p.valueWidth);
      for (int64_t i = 0; i < shared; ++i)
        backward({p, batch, group * shared + i}, operands, dkey, dvalue);
      storeRows(dkey, p.keys, p.width, p, const_cast<void *>(operands[8]),
                p.strideDKey, batch, group);
      storeRows(dvalue, p.keys, p.valueWidth, p,
                const_cast<void *>(operands[9]), p.strideDValue, batch, group);
    }
  }
}

} // namespace fsdpc::runtime::emulation

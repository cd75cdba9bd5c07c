// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference of attention and its gradient, in the form that needs only the
// log-sum-exp of the forward (Dao et al., FlashAttention, 2022). Scores are
// computed one query at a time, in doubles.
#include "compiler/dialects/nn/reference/Families.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace fsdpc::nn::reference {

namespace {
/// The sizes and masked scores that both directions need. Query B×H×T×d, key
/// B×G×S×d; H is a multiple of G.
struct Scores {
  const ReferenceTensor &query, &key, *mask;
  double scale;
  bool causal;
  int64_t heads, rows, keys, depth, group;

  template <typename AttentionLike>
  Scores(AttentionLike op, Inputs in, const ReferenceTensor &query,
         const ReferenceTensor &key)
      : query(query), key(key), mask(optionalInput(in, op.getMaskMutable())),
        scale(op.getScale().convertToDouble()), causal(op.getCausal()),
        heads(query.shape[1]), rows(query.shape[2]), keys(key.shape[2]),
        depth(query.shape[3]), group(heads / key.shape[1]) {}

  /// The start of a query's row in a tensor of the given depth, and of a key's.
  int64_t queryRow(int64_t b, int64_t h, int64_t t, int64_t width) const {
    return ((b * heads + h) * rows + t) * width;
  }
  int64_t keyRow(int64_t b, int64_t h, int64_t s, int64_t width) const {
    // Query heads h · group … share one key head.
    return ((b * (heads / group) + h / group) * keys + s) * width;
  }

  /// Returns the score, or -∞ if the key is masked.
  double operator()(int64_t b, int64_t h, int64_t t, int64_t s) const {
    constexpr double masked = -std::numeric_limits<double>::infinity();
    // The last query sees all keys; each earlier one sees one key less
    // than the next.
    if (causal && s > t + keys - rows)
      return masked;
    double score = 0;
    for (int64_t j = 0; j < depth; ++j)
      score += query.floats[queryRow(b, h, t, depth) + j] *
               key.floats[keyRow(b, h, s, depth) + j];
    score *= scale;
    if (!mask)
      return score;
    int64_t at = broadcastPosition(mask->shape, {b, h, t, s});
    // A float mask is added after the scale, a mask of i1 keeps keys where it
    // is true.
    if (mask->isFloat())
      return score + mask->floats[at];
    return mask->ints[at] ? score : masked;
  }

  template <typename Fn> void forEachRow(Fn visit) const {
    for (int64_t b = 0; b < query.shape[0]; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < rows; ++t)
          visit(b, h, t);
  }
};
} // namespace

// Computes a row of scores, its log-sum-exp, and the weighted sum of values.
static void attention(AttentionOp op, Inputs in, ReferenceTensors &out) {
  Scores scores(op, in, in[0], in[1]);
  int64_t width = in[2].shape[3];
  scores.forEachRow([&](int64_t b, int64_t h, int64_t t) {
    std::vector<double> row(scores.keys);
    double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t s = 0; s < scores.keys; ++s) {
      row[s] = scores(b, h, t, s);
      // A NaN stays the maximum, and makes the row NaN.
      if (row[s] > maximum || std::isnan(row[s]))
        maximum = row[s];
    }
    // A row without keys keeps -∞.
    double &lse = out[1].floats[scores.queryRow(b, h, t, 1)];
    lse = maximum;
    if (maximum == -std::numeric_limits<double>::infinity())
      return; // no key: zeros
    for (double score : row)
      sum += std::exp(score - maximum);
    lse += std::log(sum);
    double *result = &out[0].floats[scores.queryRow(b, h, t, width)];
    for (int64_t s = 0; s < scores.keys; ++s)
      for (int64_t j = 0; j < width; ++j)
        result[j] += std::exp(row[s] - maximum) / sum *
                     in[2].floats[scores.keyRow(b, h, s, width) + j];
  });
}

// Returns the probabilities of a row: exp(score - lse), which are divided by
// their sum because a mask of finite numbers may make the lse so large that it
// does not hold the logarithm of the sum.
static std::vector<double> probabilities(const Scores &scores, int64_t b,
                                         int64_t h, int64_t t, double lse) {
  std::vector<double> row(scores.keys);
  double sum = 0;
  for (int64_t s = 0; s < scores.keys; ++s) {
    double score = scores(b, h, t, s);
    // A masked key has p = 0. In a row without keys lse is -∞, too, and the
    // difference would be NaN.
    if (score != -std::numeric_limits<double>::infinity())
      sum += row[s] = std::exp(score - lse);
  }
  for (double &p : row)
    p /= sum == 0 ? 1 : sum;
  return row;
}

// p = exp(score - lse), dp = grad · value, ds = p · (dp - grad · output) ·
// scale; grad · output stands for Σ p · dp over the row. Key heads that a group
// of query heads shares add up their gradients. Results start as zeros, so
// every loop adds.
static void attentionGrad(AttentionGradOp op, Inputs in,
                          ReferenceTensors &out) {
  const auto &grad = in[0].floats, &query = in[1].floats, &key = in[2].floats,
             &value = in[3].floats, &output = in[4].floats, &lse = in[5].floats;
  auto &dquery = out[0].floats, &dkey = out[1].floats, &dvalue = out[2].floats;
  Scores scores(op, in, in[1], in[2]);
  int64_t width = in[3].shape[3], depth = scores.depth;
  scores.forEachRow([&](int64_t b, int64_t h, int64_t t) {
    int64_t g = scores.queryRow(b, h, t, width);
    int64_t q = scores.queryRow(b, h, t, depth);
    double dot = 0;
    for (int64_t j = 0; j < width; ++j)
      dot += grad[g + j] * output[g + j];
    std::vector<double> row =
        probabilities(scores, b, h, t, lse[scores.queryRow(b, h, t, 1)]);
    for (int64_t s = 0; s < scores.keys; ++s) {
      double p = row[s];
      if (p == 0)
        continue;
      int64_t v = scores.keyRow(b, h, s, width);
      int64_t k = scores.keyRow(b, h, s, depth);
      double dp = 0;
      for (int64_t j = 0; j < width; ++j) {
        dp += grad[g + j] * value[v + j];
        dvalue[v + j] += p * grad[g + j];
      }
      double ds = p * (dp - dot) * scores.scale;
      for (int64_t j = 0; j < depth; ++j) {
        dquery[q + j] += ds * key[k + j];
        dkey[k + j] += ds * query[q + j];
      }
    }
  });
}

void addAttention(ReferenceTable &table) {
  table.add<AttentionOp>(attention);
  table.add<AttentionGradOp>(attentionGrad);
}

} // namespace fsdpc::nn::reference

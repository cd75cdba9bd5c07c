// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognises scaled dot-product attention (Vaswani et al., 2017) as exporters
// write it: a product of the query and the transposed key, scales on any of
// them, masks, softmax, its NaN clean-up, a product with the value. Keys and
// values that are repeated for grouped heads (Ainslie et al., 2023) are read
// once.
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/import/recognise/Masks.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

namespace {

// A tensor, and the shape in which it is meant; the reshape is built on
// success.
struct Shaped {
  Value data;
  Shape shape;
};

// The parts of one attention. Matching collects them without changing the IR.
struct Parts {
  Parts(ArrayRef<int64_t> scores, MaskConstants &known, FiniteMasks reading)
      : masks(scores, known, reading) {}
  // B batch, H query heads, G groups of keys, T queries, S keys.
  Shaped query, key, value; // B×H×T×d, B×G×S×d, B×G×S×e
  // The product of all factors on scores, query and key.
  double scale = 1;
  Masks masks;
};

} // namespace

// Returns p if the value is where(isnan(p), 0, p), else the value.
static Value throughNaNGuard(Value value) {
  auto select = value.getDefiningOp<nn::SelectOp>();
  auto isNaN =
      select ? select.getCondition().getDefiningOp<nn::CmpOp>() : nn::CmpOp();
  // x != x holds for a NaN only.
  bool isGuard = isNaN && isNaN.getPredicate() == nn::Predicate::ne &&
                 isNaN.getLhs() == isNaN.getRhs() &&
                 isNaN.getLhs() == select.getOnFalse() &&
                 nn::matchSplat(select.getOnTrue()) == 0.0;
  return isGuard ? select.getOnFalse() : value;
}

// Returns x if the value is where(hidden, 0, x), else null.
static Value zeroedWhere(Value hidden, Value value) {
  auto select = value.getDefiningOp<nn::SelectOp>();
  bool matches = select && select.getCondition() == hidden &&
                 nn::matchSplat(select.getOnTrue()) == 0.0;
  return matches ? select.getOnFalse() : Value();
}

// Returns true if the value tells, for each element of x, that its row is minus
// infinity throughout.
static bool isHiddenRow(Value value, Value x) {
  auto equals = throughBroadcasts(value).getDefiningOp<nn::CmpOp>();
  auto max =
      equals ? equals.getLhs().getDefiningOp<nn::ReduceOp>() : nn::ReduceOp();
  int64_t last = int64_t(nn::shapeOf(x).size()) - 1;
  return max && equals.getPredicate() == nn::Predicate::eq &&
         max.getKind() == nn::ReduceKind::max && max.getInput() == x &&
         max.getAxes() == ArrayRef<int64_t>{last} &&
         nn::matchSplat(equals.getRhs()) ==
             -std::numeric_limits<double>::infinity();
}

// Returns the scores if the value is their softmax, also one that gives zeros
// in rows of minus infinity as softmaxOrZeros of the import builds it; else
// null.
static Value matchProbabilities(Value value) {
  value = throughNaNGuard(value);
  auto select = value.getDefiningOp<nn::SelectOp>();
  Value hidden = select ? select.getCondition() : Value();
  if (hidden)
    value = zeroedWhere(hidden, value);
  auto softmax = value ? value.getDefiningOp<nn::SoftmaxOp>() : nn::SoftmaxOp();
  if (!softmax || !hidden)
    return softmax ? softmax.getInput() : Value();
  Value scores = zeroedWhere(hidden, softmax.getInput());
  return scores && isHiddenRow(hidden, scores) ? scores : Value();
}

// Exporters write a handful of scales, masks and biases.
static constexpr int kMostScoreOps = 64;

// Strips scales and masks from the scores, adds them to `parts`, and returns
// the product below them, or null. The scale collected so far applies to
// everything below, masks included. Each branch of a sum is tried on a copy, so
// a failed attempt leaves no masks behind. `visits` bounds the recursion and
// the attempts, whose number would double with each sum of a value with itself.
static nn::MatmulOp matchScores(Value value, Parts &parts, int &visits) {
  if (visits-- <= 0)
    return nullptr;
  value = throughScaling(value, parts.scale);
  if (auto product = value.getDefiningOp<nn::MatmulOp>())
    return product;
  if (auto select = value.getDefiningOp<nn::SelectOp>()) {
    // A negative scale would turn a hidden key into the strongest one.
    if (parts.scale <= 0)
      return nullptr;
    auto hides = [&](Value branch, bool negated) {
      std::optional<double> number = nn::matchSplat(branch);
      return number &&
             parts.masks.keep(select.getCondition(), negated, *number);
    };
    if (hides(select.getOnFalse(), false))
      return matchScores(select.getOnTrue(), parts, visits);
    if (hides(select.getOnTrue(), true))
      return matchScores(select.getOnFalse(), parts, visits);
    return nullptr;
  }
  auto add = value.getDefiningOp<nn::AddOp>();
  if (!add)
    return nullptr;
  // Either operand may be the mask.
  for (auto [scores, mask] : {std::pair(add.getLhs(), add.getRhs()),
                              std::pair(add.getRhs(), add.getLhs())}) {
    Parts attempt = parts;
    if (!attempt.masks.add(mask, parts.scale))
      continue;
    if (nn::MatmulOp product = matchScores(scores, attempt, visits)) {
      parts = attempt;
      return product;
    }
  }
  return nullptr;
}

// Returns x if `value` is x with its last two axes swapped, by a transpose that
// may also act on a reshape in which leading axes are merged. Exporters merge
// batch and heads before they transpose, so the transpose is looked for behind
// reshapes; only the last two axes must agree.
static std::optional<Shaped> matchSwapped(Value value) {
  // The shape of `value` with its last two axes swapped back, which is that of
  // x.
  Shape shape(nn::shapeOf(value));
  std::swap(shape.end()[-1], shape.end()[-2]);
  auto transpose = throughReshapes(value).getDefiningOp<nn::TransposeOp>();
  if (!transpose)
    return std::nullopt;
  ArrayRef<int64_t> permutation = transpose.getPermutation();
  int64_t rank = permutation.size();
  // The permutation that swaps the last two axes.
  Shape swap;
  for (int64_t i = 0; i < rank; ++i)
    swap.push_back(i);
  if (rank < 2)
    return std::nullopt;
  std::swap(swap.end()[-1], swap.end()[-2]);
  ArrayRef<int64_t> inner = nn::shapeOf(transpose.getInput());
  if (permutation != ArrayRef<int64_t>(swap) ||
      inner.end()[-1] != shape.end()[-1] || inner.end()[-2] != shape.end()[-2])
    return std::nullopt;
  return Shaped{transpose.getInput(), shape};
}

// Turns B×T×d into B×1×T×d. Returns false if the result is not of rank 4.
static bool toRank4(Shaped &tensor) {
  if (tensor.shape.size() == 3)
    tensor.shape.insert(tensor.shape.begin() + 1, 1);
  return tensor.shape.size() == 4;
}

// Returns the keys or values before they were repeated for the query heads of
// their group.
static Shaped beforeRepeat(const Shaped &tensor) {
  Value data = throughReshapes(tensor.data);
  auto repeat = data.getDefiningOp<nn::BroadcastOp>();
  if (!repeat)
    return tensor;
  ArrayRef<int64_t> shape = tensor.shape;
  Shape from(nn::shapeOf(repeat.getInput())), to(nn::shapeOf(data));
  // Shapes of a broadcast are aligned on the right.
  from.insert(from.begin(), to.size() - from.size(), 1);
  if (to.size() == 4 && from[1] == 1) { // one group for all heads
    from.insert(from.begin() + 1, 1);
    to.insert(to.begin() + 1, 1);
  }
  if (to.size() != 5)
    return tensor;
  // B×G×1×S×d repeated to B×G×n×S×d.
  bool isRepeat = to[0] == shape[0] && to[1] * to[2] == shape[1] &&
                  to[3] == shape[2] && to[4] == shape[3] && from[0] == to[0] &&
                  from[1] == to[1] && from[2] == 1 && from[3] == to[3] &&
                  from[4] == to[4];
  if (!isRepeat)
    return tensor;
  return {repeat.getInput(), {to[0], to[1], to[3], to[4]}};
}

// Collects the parts of an attention that ends in this product, or returns
// nullopt. Everything is checked before the IR is changed.
static std::optional<Parts> match(nn::MatmulOp output, MaskConstants &known) {
  // The probabilities must have no other reader: the composite does not give
  // them out.
  if (output.getAccumulator() || output.getTransposeA() ||
      output.getTransposeB() || !output.getLhs().hasOneUse())
    return std::nullopt;
  Value scored = matchProbabilities(output.getLhs());
  if (!scored)
    return std::nullopt;
  ArrayRef<int64_t> scores = nn::shapeOf(scored);
  // Scores of other ranks have no batch and heads to tell apart.
  if (scores.size() != 3 && scores.size() != 4)
    return std::nullopt;
  Parts parts(scores, known, FiniteMasks::Hide);
  int visits = kMostScoreOps;
  nn::MatmulOp product = matchScores(scored, parts, visits);
  if (product && !parts.masks.isExact()) {
    parts = Parts(scores, known, FiniteMasks::Add);
    visits = kMostScoreOps;
    product = matchScores(scored, parts, visits);
  }
  if (!product || product.getAccumulator() || product.getTransposeA())
    return std::nullopt;

  // Some models scale the query, others the key or both by a root.
  Value query = throughScaling(product.getLhs(), parts.scale);
  parts.query = {query, Shape(nn::shapeOf(query))};
  Value key = throughScaling(product.getRhs(), parts.scale);
  if (product.getTransposeB()) {
    parts.key = {key, Shape(nn::shapeOf(key))};
  } else {
    std::optional<Shaped> swapped = matchSwapped(key);
    if (!swapped)
      return std::nullopt;
    parts.key = {throughScaling(swapped->data, parts.scale), swapped->shape};
  }
  parts.value = {output.getRhs(), Shape(nn::shapeOf(output.getRhs()))};
  if (!toRank4(parts.query) || !toRank4(parts.key) || !toRank4(parts.value))
    return std::nullopt;

  // Both are read before their repetition or neither is, since they must have
  // the same number of groups.
  Shaped key0 = beforeRepeat(parts.key), value0 = beforeRepeat(parts.value);
  if (key0.shape[1] == value0.shape[1]) {
    parts.key = key0;
    parts.value = value0;
  }
  ArrayRef<int64_t> q = parts.query.shape, k = parts.key.shape,
                    v = parts.value.shape;
  // Batch sizes agree, the heads divide into groups, keys and values have one
  // length, queries and keys one width.
  if (q[0] != k[0] || q[0] != v[0] || k[1] != v[1] || q[1] % k[1] != 0 ||
      k[2] != v[2] || q[3] != k[3])
    return std::nullopt;
  // Scales on both sides are rounded square roots; their exact product is
  // meant.
  double exact = 1 / std::sqrt(double(q[3]));
  if (isNear(parts.scale, exact))
    parts.scale = exact;
  return parts;
}

namespace {
struct Attention : OpRewritePattern<nn::MatmulOp> {
  using OpRewritePattern::OpRewritePattern;
  // One cache for all attentions of the module. The pattern is applied by one
  // thread.
  mutable MaskConstants known;
  LogicalResult matchAndRewrite(nn::MatmulOp op,
                                PatternRewriter &rewriter) const override {
    std::optional<Parts> parts = match(op, known);
    if (!parts)
      return failure();
    recognise::Builder b(rewriter, op);
    auto shaped = [&](const Shaped &tensor) {
      return b.reshape(tensor.data, tensor.shape);
    };
    ArrayRef<int64_t> q = parts->query.shape;
    auto type = op.getType().clone(
        ArrayRef<int64_t>{q[0], q[1], q[2], parts->value.shape[3]});
    auto attention = b.create<nn::AttentionOp>(
        TypeRange{type, b.statistics(q.take_front(3))}, shaped(parts->query),
        shaped(parts->key), shaped(parts->value), parts->masks.build(b),
        rewriter.getF64FloatAttr(parts->scale),
        parts->masks.causal ? rewriter.getUnitAttr() : UnitAttr());
    // The greedy driver removes what is left without readers.
    rewriter.replaceOp(
        op, b.reshape(attention.getResult(), op.getType().getShape()));
    return success();
  }
};
} // namespace

void recognise::populateAttention(RewritePatternSet &patterns) {
  patterns.add<Attention>(patterns.getContext());
}

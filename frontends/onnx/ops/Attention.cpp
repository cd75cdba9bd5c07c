// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention and RotaryEmbedding of opset 23. Both accept heads either as a
// dimension of their own (rank 4) or merged into the last one (rank 3); they
// are split here, so that nn.attention only knows rank 4. Attention that it
// does not have (capped scores, a gradient of the mask) becomes products and a
// softmax.
#include "compiler/dialects/fsdp/Provenance.h"
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/GraphImporter.h"
#include "frontends/onnx/ops/TracedAttention.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// A mask is made of few ops. With a limit, a graph of many attentions takes no
// quadratic time.
constexpr size_t kMostMaskOps = 256;

// Turns B×T×(H·d) into B×H×T×d; an input of rank 4 has that form already.
// Returns null after it has refused the node.
static Value toHeads(Node &node, Value x, int64_t heads) {
  if (rankOf(x) == 4)
    return x;
  if (rankOf(x) != 3 || heads < 1 || shapeOf(x)[2] % heads != 0)
    return (void)node.refuse("inputs must have rank 3 or 4, and the number of "
                             "heads must divide the last dimension"),
           Value();
  ArrayRef<int64_t> s = shapeOf(x);
  Value split = node.b.reshape(x, {s[0], s[1], heads, s[2] / heads});
  return node.b.transpose(split, {0, 2, 1, 3});
}

// The inverse of toHeads, for a node whose inputs have rank `rank`.
static Value fromHeads(Emitter &b, Value x, int64_t rank) {
  if (rank == 4)
    return x;
  ArrayRef<int64_t> s = shapeOf(x);
  Shape merged = {s[0], s[2], s[1] * s[3]};
  return b.reshape(b.transpose(x, {0, 2, 1, 3}), merged);
}

namespace {
// The operands of an attention, as heads: B×H×T×d. A mask of bools says what
// takes part, one of floats is added to the scores; both have rank 4.
struct Heads {
  Value q, k, v, mask;
  double scale, softcap;
  Shape scores() const {
    return {shapeOf(q)[0], shapeOf(q)[1], shapeOf(q)[2], shapeOf(k)[2]};
  }
};
} // namespace

// Hides the keys in `mask` that `kept` (bools) does not keep.
static Value restricted(Emitter &b, Value mask, Value kept,
                        ArrayRef<int64_t> scores) {
  if (!mask)
    return kept;
  std::optional<Shape> shape = broadcastShapes(shapeOf(mask), shapeOf(kept));
  mask = b.broadcast(mask, shape ? ArrayRef<int64_t>(*shape) : scores);
  kept = b.broadcast(kept, shapeOf(mask));
  if (elementOf(mask).isInteger(1))
    return b.binary<nn::AndOp>(mask, kept);
  return b.select(kept, mask,
                  b.like(mask, -std::numeric_limits<double>::infinity()));
}

// Brings the mask to rank 4, and to the number of keys: keys that it does not
// name take no part. Returns null after it has refused the node. ONNX pads a
// mask that is shorter than the keys as "does not take part": false, or minus
// infinity.
static Value readMask(Node &node, const Heads &heads) {
  Emitter &b = node.b;
  Value mask = node.input(3);
  int64_t missing =
      rankOf(mask) == 0 ? 0 : heads.scores().back() - shapeOf(mask).back();
  if (missing > 0 && shapeOf(mask).back() != 1) {
    Shape rest(shapeOf(mask));
    rest.back() = missing;
    double none = elementOf(mask).isInteger(1)
                      ? 0
                      : -std::numeric_limits<double>::infinity();
    mask = b.concat({mask, b.splat(tensorType(mask).clone(rest), none)},
                    rankOf(mask) - 1);
  }
  if (!node.broadcastsTo(mask, heads.scores()))
    return (void)node.refuse(
               "the mask does not broadcast to the shape of the scores"),
           Value();
  // A mask of rank 2 or 3 broadcasts over heads and batch.
  Shape padded(4 - rankOf(mask), 1);
  padded.append(shapeOf(mask).begin(), shapeOf(mask).end());
  return b.reshape(mask, padded);
}

// Attention as products and a softmax, for what nn.attention does not have:
// capped scores, scores as an output, a gradient of the mask. Sets output 3. It
// holds B×H×T×S scores, which nn.attention never does.
static Value byProducts(Node &node, const Heads &heads) {
  Emitter &b = node.b;
  auto [q, k, v, mask, scale, softcap] = heads;
  ArrayRef<int64_t> qs = shapeOf(q);
  // Repeats each head of the keys and values for its group of queries.
  auto repeated = [&](Value x) {
    ArrayRef<int64_t> s = shapeOf(x);
    int64_t times = qs[1] / s[1];
    if (times == 1)
      return x;
    Value wide = b.broadcast(b.reshape(x, {s[0], s[1], 1, s[2], s[3]}),
                             {s[0], s[1], times, s[2], s[3]});
    return b.reshape(wide, {s[0], qs[1], s[2], s[3]});
  };
  Shape shape = heads.scores();
  int64_t mode = node.getInt("qk_matmul_output_mode", 0);
  // The order is that of the specification: scale, cap, mask, softmax. Output 3
  // is one of these, by its mode.
  Value scores = b.matmul(q, repeated(k), shape, false, true);
  scores = b.binary<nn::MulOp>(scores, scale);
  Value output = scores;
  if (softcap > 0) {
    scores = b.binary<nn::MulOp>(
        b.unary<nn::TanhOp>(b.binary<nn::DivOp>(scores, softcap)), softcap);
    output = scores;
  }
  if (mask) {
    mask = b.broadcast(mask, shape);
    bool isBool = elementOf(mask).isInteger(1);
    double none = -std::numeric_limits<double>::infinity();
    scores = isBool ? b.select(mask, scores, b.like(scores, none))
                    : b.binary<nn::AddOp>(scores, mask);
  }
  output = mode == 2 ? scores : output;
  // The causal triangle alone leaves each query a key.
  bool mayHideRows = node.has(3) || node.has(6);
  Value weights =
      mayHideRows ? softmaxOrZeros(b, scores) : b.unary<nn::SoftmaxOp>(scores);
  node.setOutput(3, mode == 3 ? weights : output);
  Shape result = {qs[0], qs[1], qs[2], shapeOf(v)[3]};
  return b.matmul(weights, repeated(v), result);
}

// Reads query, key and value as heads, with the past keys and values in front.
// Returns nullopt after it has refused the node.
static std::optional<Heads> readHeads(Node &node) {
  Emitter &b = node.b;
  auto refuse = [&](const Twine &reason) -> std::optional<Heads> {
    (void)node.refuse(reason);
    return std::nullopt;
  };
  // Each step below refuses with its own reason, so a failure only has to be
  // passed on.
  for (int64_t i = 0; i < 3; ++i)
    if (failed(node.expectFloat(node.input(i))))
      return std::nullopt;
  int64_t kvHeads = node.getInt("kv_num_heads", 0);
  Heads heads{};
  heads.q = toHeads(node, node.input(0), node.getInt("q_num_heads", 0));
  heads.k = heads.q ? toHeads(node, node.input(1), kvHeads) : Value();
  heads.v = heads.k ? toHeads(node, node.input(2), kvHeads) : Value();
  if (!heads.v)
    return std::nullopt;
  if (node.has(4) != node.has(5))
    return refuse("inputs 'past_key' and 'past_value' come together");
  for (auto [i, value] : {std::pair(4, &heads.k), std::pair(5, &heads.v)}) {
    Value past = node.input(i);
    if (!past)
      continue;
    ArrayRef<int64_t> s = shapeOf(*value);
    if (rankOf(past) != 4 || shapeOf(past).take_front(2) != s.take_front(2) ||
        shapeOf(past)[3] != s[3] || elementOf(past) != elementOf(*value))
      return refuse("past keys and values must have the shape of the new ones, "
                    "but for their number");
    // An exporter's cache is empty at first, and a concat of no rows would be a
    // copy.
    if (shapeOf(past)[2] > 0)
      *value = b.concat({past, *value}, 2);
  }
  ArrayRef<int64_t> qs = shapeOf(heads.q), ks = shapeOf(heads.k),
                    vs = shapeOf(heads.v);
  if (qs[0] != ks[0] || qs[0] != vs[0] || ks[1] != vs[1] || ks[2] != vs[2] ||
      qs[3] != ks[3] || ks[1] == 0 || qs[1] % ks[1] != 0)
    return refuse("query, key and value have incompatible shapes");
  heads.scale = node.getFloat("scale", 1 / std::sqrt(double(qs[3])));
  heads.softcap = node.getFloat("softcap", 0);
  return heads;
}

// Inputs: query, key, value, mask (bool: true takes part; float: added to the
// scores), past keys and values, and how many keys of each sample count. Query
// heads may be a multiple of the key's (grouped-query attention).
static LogicalResult attention(Node &node) {
  if (failed(node.expectInputs(3, 7)))
    return failure();
  Emitter &b = node.b;
  // Outputs 1 and 2 are the whole cache, as heads, for the next call.
  std::optional<Heads> heads = readHeads(node);
  if (!heads)
    return failure();
  node.setOutput(1, heads->k);
  node.setOutput(2, heads->v);
  Shape scores = heads->scores();
  int64_t batch = scores[0], queries = scores[2], keys = scores[3];
  if (node.has(3) && !(heads->mask = readMask(node, *heads)))
    return failure();
  // Keys at or past the count of a sample are padding and take no part.
  if (Value counts = node.input(6)) {
    if (shapeOf(counts) != ArrayRef<int64_t>({batch}) ||
        !isa<IntegerType>(elementOf(counts)))
      return node.refuse("'nonpad_kv_seqlen' must have one integer per sample");
    Shape row = {batch, 1, 1, keys};
    Value most = b.cast(counts, b.builder.getI64Type());
    most = b.broadcast(b.reshape(most, {batch, 1, 1, 1}), row);
    Value kept = b.compare(nn::Predicate::lt, b.iota(row, 3), most);
    heads->mask = restricted(b, heads->mask, kept, scores);
  }
  bool causal = node.getInt("is_causal", 0);
  int64_t past = node.has(4) ? shapeOf(node.input(4))[2] : 0;
  // nn.attention aligns the causal triangle at the bottom right, ONNX at the
  // end of the past. Where the two differ, the triangle becomes a mask.
  bool isLearnt = heads->mask && !elementOf(heads->mask).isInteger(1) &&
                  fsdp::dependsOnLoad(heads->mask, kMostMaskOps);
  bool isExplicit = heads->softcap != 0 || node.isUsed(3) || isLearnt;
  if (causal && (isExplicit || keys - queries != past)) {
    Shape matrix = {1, 1, queries, keys};
    Value last = b.binary<nn::AddOp>(b.iota(matrix, 2), double(past));
    Value kept = b.compare(nn::Predicate::le, b.iota(matrix, 3), last);
    heads->mask = restricted(b, heads->mask, kept, scores);
    causal = false;
  }
  // The result has the query's rank.
  int64_t rank = rankOf(node.input(0));
  if (isExplicit)
    return node.result(fromHeads(b, byProducts(node, *heads), rank));
  // The log-sum-exp of each row of scores, which the backward reads.
  ArrayRef<int64_t> qs = shapeOf(heads->q);
  auto lse = RankedTensorType::get(qs.take_front(3), b.builder.getF32Type());
  Shape shape = {qs[0], qs[1], qs[2], shapeOf(heads->v)[3]};
  auto result = b.op<nn::AttentionOp>(
      TypeRange{tensorType(heads->q).clone(shape), lse}, heads->q, heads->k,
      heads->v, heads->mask, b.builder.getF64FloatAttr(heads->scale),
      causal ? b.builder.getUnitAttr() : UnitAttr());
  return node.result(fromHeads(b, result.getResult(), rank));
}

// Moves pairs (x[2i], x[2i+1]) into two halves, the form of nn.rotary, or back.
// A reshape and a transpose, so that the adjoint moves the gradient back.
static Value deinterleave(Emitter &b, Value x, bool back) {
  Shape pairs(shapeOf(x));
  int64_t half = pairs.back() / 2, rank = rankOf(x);
  pairs.back() = back ? 2 : half;
  pairs.push_back(back ? half : 2);
  Shape swap;
  for (int64_t i = 0; i <= rank; ++i)
    swap.push_back(i);
  std::swap(swap[rank], swap[rank - 1]);
  Shape shape(shapeOf(x));
  return b.reshape(b.transpose(b.reshape(x, pairs), swap), shape);
}

// Rotates the first `rotated` elements of each head and passes the rest on. The
// tables come as one row per position, already selected, or are looked up by
// position_ids. RoFormer (Su et al., 2021). `interleaved` is the paper's form
// with neighbours as pairs; nn.rotary takes the halves that LLaMA's code has.
static LogicalResult rotary(Node &node) {
  if (failed(node.expectInputs(3, 4)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  int64_t rank = rankOf(node.input(0));
  Value x = toHeads(node, node.input(0), node.getInt("num_heads", 0));
  if (!x)
    return failure();
  int64_t size = shapeOf(x)[3],
          rotated = node.getInt("rotary_embedding_dim", 0);
  rotated = rotated == 0 ? size : rotated;
  if (rotated < 2 || rotated > size || rotated % 2 != 0)
    return node.refuse("attribute 'rotary_embedding_dim' is " + Twine(rotated) +
                       "; it must be even and at most the head size, " +
                       Twine(size));
  Value table[2];
  for (int64_t i : {1, 2}) {
    Value cache = node.input(i);
    if (Value ids = node.input(3)) {
      if (rankOf(cache) != 2 || rankOf(ids) != 2 ||
          failed(node.expectFloat(cache)))
        return node.refuse(
            "'cos_cache', 'sin_cache' and 'position_ids' must be matrices");
      cache = b.make<nn::EmbeddingOp>(
          tensorType(cache).clone(
              {shapeOf(ids)[0], shapeOf(ids)[1], shapeOf(cache)[1]}),
          cache, ids, IntegerAttr());
    }
    if (rankOf(cache) != 3 || shapeOf(cache)[2] != rotated / 2 ||
        shapeOf(cache)[1] != shapeOf(x)[2])
      return node.refuse("'cos_cache' and 'sin_cache' must have shape [..., "
                         "positions, half the rotated dimensions]");
    ArrayRef<int64_t> s = shapeOf(cache);
    Value half = b.reshape(cache, {s[0], 1, s[1], s[2]});
    // nn.rotary reads a table as wide as its input; both halves use one angle.
    table[i - 1] = b.concat(ValueRange{half, half}, 3);
  }
  Value part = b.slice(x, 3, 0, rotated);
  bool interleaved = node.getInt("interleaved", 0);
  if (interleaved)
    part = deinterleave(b, part, false);
  part = b.make<nn::RotaryOp>(part.getType(), part, table[0], table[1],
                              UnitAttr());
  if (interleaved)
    part = deinterleave(b, part, true);
  if (rotated < size)
    part =
        b.concat(ValueRange{part, b.slice(x, 3, rotated, size - rotated)}, 3);
  return node.result(fromHeads(b, part, rank));
}

void frontend::registerAttention(HandlerTable &table) {
  table.add("Attention", 23, attention);
  table.add("RotaryEmbedding", 23, rotary);
}

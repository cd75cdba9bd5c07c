// Attention and RotaryEmbedding of opset 23. Both accept heads either as a
// dimension of their own (rank 4) or merged into the last one (rank 3); they
// are split here, so that nn.attention only knows rank 4. What the dialect
// cannot express (past keys, softcap) is refused.
#include "frontends/onnx/Node.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

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

// Inputs: query, key, value, mask (bool: true takes part; float: added to the
// scores). Query heads may be a multiple of the key's (grouped-query
// attention).
static LogicalResult attention(Node &node) {
  if (failed(node.expectInputs(3, 6)))
    return failure();
  Emitter &b = node.b;
  if (node.has(4) || node.has(5))
    return node.refuse("inputs 'past_key' and 'past_value' are not supported");
  if (node.isUsed(1) || node.isUsed(2) || node.isUsed(3))
    return node.refuse(
        "only the first output is supported, but others are used");
  if (node.getFloat("softcap", 0) != 0)
    return node.refuse("attribute 'softcap' is " +
                       std::to_string(node.getFloat("softcap", 0)) +
                       "; only 0 is supported");
  for (int64_t i = 0; i < 3; ++i)
    if (failed(node.expectFloat(node.input(i))))
      return failure();
  int64_t rank = rankOf(node.input(0));
  int64_t kvHeads = node.getInt("kv_num_heads", 0);
  Value q = toHeads(node, node.input(0), node.getInt("q_num_heads", 0));
  Value k = q ? toHeads(node, node.input(1), kvHeads) : Value();
  Value v = k ? toHeads(node, node.input(2), kvHeads) : Value();
  if (!v)
    return failure();
  ArrayRef<int64_t> qs = shapeOf(q), ks = shapeOf(k), vs = shapeOf(v);
  if (qs[0] != ks[0] || qs[0] != vs[0] || ks[1] != vs[1] || ks[2] != vs[2] ||
      qs[3] != ks[3] || ks[1] == 0 || qs[1] % ks[1] != 0)
    return node.refuse("query, key and value have incompatible shapes");
  Shape scores = {qs[0], qs[1], qs[2], ks[2]};
  Value mask = node.input(3);
  if (mask) {
    if (!node.broadcastsTo(mask, scores))
      return node.refuse(
          "the mask does not broadcast to the shape of the scores");
    // Sizes of 1 in front make the mask's rank 4, as nn.attention requires.
    Shape padded(4 - rankOf(mask), 1);
    padded.append(shapeOf(mask).begin(), shapeOf(mask).end());
    mask = b.reshape(mask, padded);
  }
  bool causal = node.getInt("is_causal", 0);
  if (causal && qs[2] != ks[2]) {
    // ONNX aligns the causal triangle at the top left, nn.attention at the
    // bottom right. With unequal lengths the two differ, and the triangle
    // becomes a mask.
    Shape matrix = {1, 1, qs[2], ks[2]};
    Value triangle =
        b.compare(nn::Predicate::le, b.iota(matrix, 3), b.iota(matrix, 2));
    if (mask && !elementOf(mask).isInteger(1))
      return node.refuse("causal attention with an additive mask requires "
                         "equally many queries and keys");
    if (mask) {
      SmallVector<Value> both = {mask, triangle};
      if (failed(node.broadcast(both)))
        return failure();
      triangle = b.binary<nn::AndOp>(both[0], both[1]);
    }
    mask = triangle;
    causal = false;
  }
  double scale = node.getFloat("scale", 1 / std::sqrt(double(qs[3])));
  // The log-sum-exp of each row of scores, which the backward reads.
  auto lse = RankedTensorType::get(qs.take_front(3), b.builder.getF32Type());
  Shape shape = {qs[0], qs[1], qs[2], vs[3]};
  auto result =
      b.op<nn::AttentionOp>(TypeRange{tensorType(q).clone(shape), lse}, q, k, v,
                            mask, b.builder.getF64FloatAttr(scale),
                            causal ? b.builder.getUnitAttr() : UnitAttr());
  return node.result(fromHeads(b, result.getResult(), rank));
}

// Moves pairs (x[2i], x[2i+1]) into two halves, the form of nn.rotary, or back.
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
// position_ids.
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

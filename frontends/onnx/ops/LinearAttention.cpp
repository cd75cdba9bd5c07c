// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LinearAttention and CausalConvWithState of opset 27, the layers of gated
// delta networks and Mamba. The recurrence is unrolled: one step per token,
// whose state is a matrix per head.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "frontends/onnx/Node.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {
// The operands as heads. Query, key, value and decay are B×H×T×d, beta is
// B×H×T×1, the state B×H×d_k×d_v. Decay and beta are null if the rule has none.
struct MemoryRecurrence {
  Value query, key, value, decay, beta, state;
  double scale;
};
} // namespace

// Turns B×T×(H·d) into B×H×T×d. Returns null after it has refused the node.
static Value toHeads(Node &node, Value x, int64_t heads) {
  if (rankOf(x) != 3 || heads < 1 || shapeOf(x)[2] % heads != 0 ||
      tensorType(x).getNumElements() == 0)
    return (void)node.refuse("inputs must have rank 3, and the number of heads "
                             "must divide their last dimension"),
           Value();
  ArrayRef<int64_t> s = shapeOf(x);
  Value split = node.b.reshape(x, {s[0], s[1], heads, s[2] / heads});
  return node.b.transpose(split, {0, 2, 1, 3});
}

// Repeats each of the heads of a state, for its group of queries. Grouped
// queries, as in Attention: queries share the state of their key head.
static Value repeated(Emitter &b, Value state, int64_t heads) {
  ArrayRef<int64_t> s = shapeOf(state);
  if (s[1] == heads)
    return state;
  Shape wide = {s[0], s[1], heads / s[1], s[2], s[3]};
  Value copies =
      b.broadcast(b.reshape(state, {s[0], s[1], 1, s[2], s[3]}), wide);
  return b.reshape(copies, {s[0], heads, s[2], s[3]});
}

// Returns nullopt after it has refused the node. "linear" is Katharopoulos et
// al., 2020; "gated" adds the decay, "delta" the delta rule of Schlag et al.,
// 2021, and "gated_delta" both (Yang et al., 2024).
static std::optional<MemoryRecurrence> readMemoryRecurrence(Node &node) {
  Emitter &b = node.b;
  auto refuse = [&](const Twine &reason) -> std::optional<MemoryRecurrence> {
    (void)node.refuse(reason);
    return std::nullopt;
  };
  std::string rule = node.getString("update_rule", "gated_delta");
  bool isGated = rule == "gated" || rule == "gated_delta";
  bool isDelta = rule == "delta" || rule == "gated_delta";
  if (!isGated && !isDelta && rule != "linear")
    return refuse("attribute 'update_rule' is '" + rule +
                  "'; use linear, gated, delta or gated_delta");
  if (isGated != node.has(4) || isDelta != node.has(5))
    return refuse("inputs 'decay' and 'beta' do not fit the update rule '" +
                  rule + "'");
  int64_t queries = node.getInt("q_num_heads", 0);
  int64_t heads = node.getInt("kv_num_heads", 0);
  if (heads < 1 || queries < 1 || queries % heads != 0)
    return refuse("'q_num_heads' must be a positive multiple of "
                  "'kv_num_heads'");
  MemoryRecurrence r{};
  r.query = toHeads(node, node.input(0), queries);
  r.key = r.query ? toHeads(node, node.input(1), heads) : Value();
  r.value = r.key ? toHeads(node, node.input(2), heads) : Value();
  if (!r.value)
    return std::nullopt;
  ArrayRef<int64_t> k = shapeOf(r.key), v = shapeOf(r.value);
  if (shapeOf(r.query)[0] != k[0] || shapeOf(r.query)[2] != k[2] ||
      shapeOf(r.query)[3] != k[3] || v.take_front(3) != k.take_front(3))
    return refuse("query, key and value have incompatible shapes");
  // One decay per head, or one per element of the key, which scales the rows of
  // the state.
  Shape perHead = {k[0], k[2], heads}, state = {k[0], heads, k[3], v[3]};
  if (isGated) {
    bool isPerHead = shapeOf(node.input(4)) == ArrayRef<int64_t>(perHead);
    if (!isPerHead && shapeOf(node.input(4)) != shapeOf(node.input(1)))
      return refuse(
          "'decay' must have one element per head, or the key's shape");
    r.decay = toHeads(node, node.input(4), heads);
  }
  if (isDelta) {
    if (!node.broadcastsTo(node.input(5), perHead))
      return refuse("'beta' must have one element per token and head");
    r.beta = toHeads(node, b.broadcast(node.input(5), perHead), heads);
  }
  r.state = node.input(3);
  if (r.state && shapeOf(r.state) != ArrayRef<int64_t>(state))
    return refuse("'past_state' must have shape " + printShape(state));
  if (!r.state)
    r.state = b.splat(tensorType(r.query).clone(state), 0);
  r.scale = node.getFloat("scale", 0);
  if (r.scale == 0)
    r.scale = 1 / std::sqrt(double(k[3]));
  return r;
}

// One token: the state decays, forgets what the key retrieves (delta rule), and
// learns the outer product of key and value. Returns what the query reads.
static Value step(Emitter &b, MemoryRecurrence &r, int64_t t) {
  ArrayRef<int64_t> shape = shapeOf(r.state);
  auto at = [&](Value x) { return b.slice(x, 2, t, 1); };
  auto column = [&](Value x) { return b.transpose(x, {0, 1, 3, 2}); };
  Value key = at(r.key), value = at(r.value);
  if (r.decay) {
    // The decay is given as its logarithm.
    Value kept = b.unary<nn::ExpOp>(column(at(r.decay)));
    r.state = b.binary<nn::MulOp>(r.state, b.broadcast(kept, shape));
  }
  Shape row = {shape[0], shape[1], 1, shape[3]};
  if (r.beta) {
    Value retrieved = b.matmul(key, r.state, row);
    value = b.binary<nn::MulOp>(b.broadcast(at(r.beta), row),
                                b.binary<nn::SubOp>(value, retrieved));
  }
  // S += k · vᵀ, as a product of a column and a row.
  r.state = b.binary<nn::AddOp>(
      r.state, b.binary<nn::MulOp>(b.broadcast(column(key), shape),
                                   b.broadcast(value, shape)));
  Value query = at(r.query);
  int64_t heads = shapeOf(query)[1];
  Shape read = {shape[0], heads, 1, shape[3]};
  return b.matmul(query, repeated(b, r.state, heads), read);
}

// `scale` multiplies the result instead of the query, which is the same up to
// rounding.
static LogicalResult linearAttention(Node &node) {
  if (failed(node.expectInputs(3, 6)))
    return failure();
  for (int64_t i = 0; i < node.numInputs(); ++i)
    if (node.has(i) && failed(node.expectFloat(node.input(i))))
      return failure();
  Emitter &b = node.b;
  std::optional<MemoryRecurrence> r = readMemoryRecurrence(node);
  if (!r)
    return failure();
  SmallVector<Value> rows;
  // A sequence that needs too many ops ends the loop early; the importer then
  // reports the budget that was exceeded.
  for (int64_t t = 0; t < shapeOf(r->key)[2] && !b.hasTooManyOps; ++t)
    rows.push_back(step(b, *r, t));
  Value y = b.binary<nn::MulOp>(b.concat(rows, 2), r->scale);
  ArrayRef<int64_t> s = shapeOf(y);
  Shape merged = {s[0], s[2], s[1] * s[3]};
  node.setOutput(0, b.reshape(b.transpose(y, {0, 2, 1, 3}), merged));
  node.setOutput(1, r->state);
  return success();
}

// A depthwise convolution over the last elements of the past and the input. The
// state is the last k - 1 inputs, so a sequence may be fed in pieces.
static LogicalResult causalConv(Node &node) {
  if (failed(node.expectInputs(2, 4)) ||
      failed(node.expectFloat(node.input(0))) ||
      failed(node.expectFloat(node.input(1))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0), filter = node.input(1), bias = node.input(2),
        past = node.input(3);
  std::string activation = node.getString("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    return node.refuse("attribute 'activation' is '" + activation +
                       "'; use none, silu or swish");
  if (rankOf(x) != 3 || rankOf(filter) != 3 ||
      tensorType(x).getNumElements() == 0 || shapeOf(filter)[1] != 1 ||
      shapeOf(filter)[0] != shapeOf(x)[1] || shapeOf(filter)[2] < 1)
    return node.refuse("the input must be B×C×L and the filter C×1×k");
  ArrayRef<int64_t> s = shapeOf(x);
  int64_t channels = s[1], kernel = shapeOf(filter)[2], kept = kernel - 1;
  Shape state = {s[0], channels, kept};
  if (past && shapeOf(past) != ArrayRef<int64_t>(state))
    return node.refuse("'past_state' must have shape " + printShape(state));
  if (!past)
    past = b.splat(tensorType(x).clone(state), 0);
  Value padded = kept > 0 ? b.concat({past, x}, 2) : x;
  Shape image = {s[0], channels, 1, s[2] + kept},
        shape = {s[0], channels, 1, s[2]};
  Shape ones = {1, 1}, none = {0, 0, 0, 0};
  Value y = b.make<nn::Conv2dOp>(
      tensorType(x).clone(shape), b.reshape(padded, image),
      b.reshape(filter, {channels, 1, 1, kernel}), ones, none, ones, channels);
  y = b.reshape(y, s);
  if (bias) {
    if (shapeOf(bias) != ArrayRef<int64_t>({channels}))
      return node.refuse("the bias must have one element per channel");
    y = b.binary<nn::AddOp>(
        y, b.broadcast(b.reshape(bias, {channels, 1}), shapeOf(y)));
  }
  node.setOutput(0, activation == "none" ? y : b.unary<nn::SiluOp>(y));
  node.setOutput(1, kept > 0 ? b.slice(padded, 2, s[2], kept) : past);
  return success();
}

void frontend::registerLinearAttention(HandlerTable &table) {
  table.add("LinearAttention", 27, linearAttention);
  table.add("CausalConvWithState", 27, causalConv);
}

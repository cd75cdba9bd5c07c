// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Below opset 23, torch's exporter writes scaled_dot_product_attention as
// products and a softmax. A boolean mask becomes where(mask, 0, lowest), and
// the softmax is followed by where(isnan(p), 0, p). torch hides keys by minus
// infinity and gives zeros where all keys of a query are hidden. With the
// lowest number instead, no NaN arises there, and the weights are alike. A
// float mask has no such clean-up at all, although torch gives zeros for its
// rows of minus infinity too. The traced call tells these nodes from a user's
// own.
#include "frontends/onnx/ops/TracedAttention.h"

#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/NormOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/TorchExport.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

static bool isAttention(const TracedCall &call) {
  return call.target.contains("scaled_dot_product_");
}

// Returns true for a splat of the lowest finite number of its type.
static bool isLowest(Value value) {
  auto type = dyn_cast<FloatType>(elementOf(value));
  return type &&
         matchSplat(value) ==
             APFloat::getLargest(type.getFloatSemantics(), /*Negative=*/true)
                 .convertToDouble();
}

// Only NaN differs from itself.
static bool isNaNOf(Value condition, Value x) {
  auto compare = condition.getDefiningOp<nn::CmpOp>();
  return compare && compare.getPredicate() == nn::Predicate::ne &&
         compare.getLhs() == x && compare.getRhs() == x;
}

Value frontend::whereOfAttention(Node &node, ArrayRef<Value> operands) {
  Value condition = operands[0], onTrue = operands[1], onFalse = operands[2];
  if (!isAttention(tracedCall(node.proto)) || matchSplat(onTrue) != 0.0)
    return nullptr;
  if (isLowest(onFalse))
    return node.b.select(condition, onTrue, node.b.like(onFalse, -kInfinity));
  // softmaxOrZeros has cleaned up already; any other NaN is an error of the run
  // that must be seen.
  return isNaNOf(condition, onFalse) ? onFalse : Value();
}

// The arguments are query, key, value, attn_mask, dropout_p and is_causal. A
// mask is added to the scores; the causal one keeps each query's own key.
bool frontend::isSoftmaxOfAttention(Node &node) {
  TracedCall call = tracedCall(node.proto);
  return isAttention(call) && call.argument(5, "is_causal") != "True" &&
         node.input(0).getDefiningOp<nn::AddOp>();
}

// Hidden rows are replaced before the softmax as well as behind it, so that
// neither it nor its adjoint computes a NaN.
Value frontend::softmaxOrZeros(Emitter &b, Value x) {
  Value max = b.reduce(nn::ReduceKind::max, x, {rankOf(x) - 1});
  Value isHidden = b.compare(nn::Predicate::eq, max, b.like(max, -kInfinity));
  isHidden = b.broadcast(isHidden, shapeOf(x));
  Value zero = b.like(x, 0);
  Value weights = b.unary<nn::SoftmaxOp>(b.select(isHidden, zero, x));
  return b.select(isHidden, zero, weights);
}

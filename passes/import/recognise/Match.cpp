// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Looks through ops that do not change a value (broadcasts, reshapes, scalar
// factors), which exporters insert freely. Constants are compared up to f32
// rounding, since they have passed through decimal text or f32 on their way.
#include "passes/import/recognise/Match.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

// Relative, so 0 is near to 0 only.
bool recognise::isNear(double value, double expected) {
  return std::abs(value - expected) <= 1e-6 * std::abs(expected);
}

bool recognise::isSplat(Value value, double expected) {
  std::optional<double> splat = nn::matchSplat(value);
  return splat && isNear(*splat, expected);
}

Value recognise::throughBroadcasts(Value value) {
  while (auto op = value.getDefiningOp<nn::BroadcastOp>())
    value = op.getInput();
  return value;
}

Value recognise::throughReshapes(Value value) {
  while (auto op = value.getDefiningOp<nn::ReshapeOp>())
    value = op.getInput();
  return value;
}

// Also looks through divisions, but not through 1 / x. f64, so that the product
// of several factors is not rounded more than once.
Value recognise::throughScaling(Value value, double &factor) {
  while (Operation *op = value.getDefiningOp()) {
    if (auto mul = dyn_cast<nn::MulOp>(op)) {
      if (auto number = nn::matchSplat(mul.getRhs())) {
        factor *= *number;
        value = mul.getLhs();
        continue;
      }
      if (auto number = nn::matchSplat(mul.getLhs())) {
        factor *= *number;
        value = mul.getRhs();
        continue;
      }
    } else if (auto div = dyn_cast<nn::DivOp>(op)) {
      if (auto number = nn::matchSplat(div.getRhs()); number && *number != 0) {
        factor /= *number;
        value = div.getLhs();
        continue;
      }
    }
    break;
  }
  return value;
}

// Descends only into products with a single use: others are values in their own
// right. No pattern has more than a few factors, so the rest of a long product
// counts as one factor each; otherwise every op of it would visit all of it.
Product recognise::factorise(Value value) {
  constexpr unsigned most = 32; // products and quotients
  Product product;
  SmallVector<Value> left = {value};
  unsigned descents = 0;
  // Depth first, left operand first, so factors come in the order of the text.
  while (!left.empty()) {
    Value next = left.pop_back_val();
    if (std::optional<double> number = nn::matchSplat(next)) {
      product.number *= *number;
      continue;
    }
    bool descends = (next == value || next.hasOneUse()) && descents++ < most;
    if (auto mul = next.getDefiningOp<nn::MulOp>(); mul && descends) {
      left.append({mul.getRhs(), mul.getLhs()});
      continue;
    }
    // Only quotients by a constant are factors; x / y stays one factor.
    if (auto div = next.getDefiningOp<nn::DivOp>(); div && descends)
      if (auto number = nn::matchSplat(div.getRhs()); number && *number != 0) {
        product.number /= *number;
        left.push_back(div.getLhs());
        continue;
      }
    product.factors.push_back(next);
  }
  return product;
}

// Importers write a mean as a sum and a scale.
Value recognise::meanOfLastAxis(Value value) {
  double factor = 1;
  auto sum = throughScaling(value, factor).getDefiningOp<nn::ReduceOp>();
  if (!sum || sum.getKind() != nn::ReduceKind::sum || sum.getAxes().size() != 1)
    return nullptr;
  Value x = sum.getInput();
  ArrayRef<int64_t> shape = nn::shapeOf(x);
  bool isLast = sum.getAxes()[0] == int64_t(shape.size()) - 1;
  return isLast && isNear(factor, 1.0 / double(shape.back())) ? x : Value();
}

Value recognise::Builder::reshape(Value value, ArrayRef<int64_t> shape) {
  if (nn::shapeOf(value) == shape)
    return value;
  return create<nn::ReshapeOp>(nn::tensorType(value).clone(shape), value);
}

Value recognise::Builder::broadcast(Value value, ArrayRef<int64_t> shape) {
  if (nn::shapeOf(value) == shape)
    return value;
  return create<nn::BroadcastOp>(nn::tensorType(value).clone(shape), value);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interval arithmetic over integer ops (Moore, Interval Analysis, 1966). What
// would overflow has the bounds of its type, and so has what no rule knows: a
// new op needs none.
#include "frontends/onnx/ops/IntegerBounds.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {

using Bounds = IntegerBounds;

constexpr Bounds everything = {std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<int64_t>::max()};
constexpr int kMostOps = 200;

// Unsigned numbers of 64 bits may be more than the greatest one here.
Bounds boundsOfType(Type type) {
  auto integer = dyn_cast<IntegerType>(getElementTypeOrSelf(type));
  if (!integer || integer.getWidth() >= 64)
    return everything;
  unsigned bits = integer.getWidth();
  if (nn::isUnsigned(integer))
    return {0, (int64_t(1) << bits) - 1};
  return {-(int64_t(1) << (bits - 1)), (int64_t(1) << (bits - 1)) - 1};
}

bool isInside(Bounds a, Bounds outer) {
  return a.low >= outer.low && a.high <= outer.high;
}

// Small enough that neither a sum nor a difference of two overflows.
bool isSmall(Bounds a) {
  constexpr int64_t most = int64_t(1) << 61;
  return a.low > -most && a.high < most;
}

// Returns 1, 0 or, if the bounds do not tell, nullopt.
std::optional<int64_t> decided(nn::Predicate predicate, Bounds a, Bounds b) {
  switch (predicate) {
  case nn::Predicate::lt:
    return a.high < b.low    ? std::optional(1)
           : a.low >= b.high ? std::optional(0)
                             : std::nullopt;
  case nn::Predicate::ge:
    return a.low >= b.high  ? std::optional(1)
           : a.high < b.low ? std::optional(0)
                            : std::nullopt;
  case nn::Predicate::gt:
    return decided(nn::Predicate::lt, b, a);
  case nn::Predicate::le:
    return decided(nn::Predicate::ge, b, a);
  case nn::Predicate::eq:
    if (a.low == a.high && b.low == b.high && a.low == b.low)
      return 1;
    return a.high < b.low || b.high < a.low ? std::optional(0) : std::nullopt;
  case nn::Predicate::ne:
    if (auto equal = decided(nn::Predicate::eq, a, b))
      return 1 - *equal;
    return std::nullopt;
  }
  return std::nullopt;
}

class Finder {
public:
  Bounds find(Value value) {
    Bounds type = boundsOfType(value.getType());
    Operation *op = value.getDefiningOp();
    if (!op || ++seen > kMostOps)
      return type;
    Bounds found = ofOp(op, type);
    return isInside(found, type) ? found : type;
  }

private:
  Bounds ofOp(Operation *op, Bounds type) {
    if (auto constant = dyn_cast<nn::ConstantOp>(op))
      return ofConstant(constant, type);
    if (auto cast = dyn_cast<nn::CastOp>(op))
      return ofCast(cast, type);
    if (auto compare = dyn_cast<nn::CmpOp>(op)) {
      auto is = decided(compare.getPredicate(), find(compare.getLhs()),
                        find(compare.getRhs()));
      return is ? Bounds{*is, *is} : type;
    }
    if (isa<nn::AndOp>(op)) {
      Bounds a = find(op->getOperand(0)), b = find(op->getOperand(1));
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    }
    if (isa<nn::AddOp, nn::SubOp>(op) || isa<nn::DivOp, nn::ModOp>(op))
      return arithmetic(op, type);
    // These ops move elements and make no new values.
    if (isa<nn::ReshapeOp, nn::TransposeOp>(op) ||
        isa<nn::SliceOp, nn::BroadcastOp>(op) || isa<nn::ConcatOp>(op)) {
      Bounds all = find(op->getOperand(0));
      for (Value part : op->getOperands().drop_front()) {
        Bounds next = find(part);
        all = {std::min(all.low, next.low), std::max(all.high, next.high)};
      }
      return all;
    }
    return type;
  }

  static Bounds ofConstant(nn::ConstantOp constant, Bounds type) {
    constexpr double kExact = double(int64_t(1) << 53);
    std::optional<double> splat = nn::matchSplat(constant);
    if (!splat || *splat < -kExact || *splat > kExact)
      return type;
    return {int64_t(*splat), int64_t(*splat)};
  }

  Bounds ofCast(nn::CastOp cast, Bounds type) {
    if (!isa<IntegerType>(getElementTypeOrSelf(cast.getInput().getType())))
      return type;
    Bounds inner = find(cast.getInput());
    if (!getElementTypeOrSelf(cast.getType()).isInteger(1))
      return inner;
    // A truth value says whether the number is zero.
    if (inner.low > 0 || inner.high < 0)
      return {1, 1};
    return inner.low == 0 && inner.high == 0 ? Bounds{0, 0} : type;
  }

  Bounds arithmetic(Operation *op, Bounds type) {
    Bounds a = find(op->getOperand(0)), b = find(op->getOperand(1));
    if (isa<nn::DivOp, nn::ModOp>(op)) {
      if (a.low < 0 || b.low <= 0)
        return type;
      if (isa<nn::DivOp>(op))
        return {a.low / b.high, a.high / b.low};
      return {0, std::min(a.high, b.high - 1)};
    }
    if (!isSmall(a) || !isSmall(b))
      return type;
    return isa<nn::AddOp>(op) ? Bounds{a.low + b.low, a.high + b.high}
                              : Bounds{a.low - b.high, a.high - b.low};
  }

  int seen = 0;
};

} // namespace

Bounds frontend::boundsOf(Value value) { return Finder().find(value); }

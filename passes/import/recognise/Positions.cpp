// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows iotas through casts, broadcasts, reshapes, slices and sums to a form
// that is linear in an element's position. A mask of any length is recognised
// by it, also where it is too large to be folded.
#include "passes/import/recognise/Positions.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

// Element (i0, i1, …) is constant + Σ factors · i. One factor per axis, 0 along
// axes of size 1. All numbers are integers.
namespace {
struct Linear {
  Shape factors;
  int64_t constant = 0;
};
} // namespace

// Beyond it, f32 does not hold every integer; no mask is as long.
constexpr int64_t kLargest = 1 << 24;

// Returns a form whose numbers all lie within what its element type and f32
// hold exactly, so that casts and sums of it are exact; otherwise nullopt.
static std::optional<Linear> bounded(Linear linear, RankedTensorType type) {
  Type element = type.getElementType();
  int64_t most = kLargest;
  if (element.isBF16())
    most = 1 << 8;
  else if (element.isF16())
    most = 1 << 11;
  else if (element.isInteger() && element.getIntOrFloatBitWidth() < 32)
    return std::nullopt;
  int64_t low = linear.constant, high = linear.constant;
  for (auto [factor, size] : llvm::zip_equal(linear.factors, type.getShape())) {
    int64_t reach;
    if (size < 1 || llvm::MulOverflow(factor, size - 1, reach) ||
        llvm::AddOverflow(reach < 0 ? low : high, reach,
                          reach < 0 ? low : high))
      return std::nullopt;
  }
  if (low < -most || high > most)
    return std::nullopt;
  return linear;
}

// A constant may be one number, or a vector of equal steps.
static std::optional<Linear> linearOfConstant(Value value) {
  ArrayRef<int64_t> shape = nn::shapeOf(value);
  Linear linear{Shape(shape.size(), 0), 0};
  auto isWhole = [](double number) {
    return std::abs(number) <= kLargest && number == std::floor(number);
  };
  if (std::optional<double> splat = nn::matchSplat(value)) {
    if (!isWhole(*splat))
      return std::nullopt;
    linear.constant = int64_t(*splat);
    return linear;
  }
  DenseElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)))
    return std::nullopt;
  int64_t axis = -1;
  for (auto [i, size] : llvm::enumerate(shape)) {
    if (size == 1)
      continue;
    if (axis >= 0)
      return std::nullopt;
    axis = i;
  }
  if (axis < 0)
    return std::nullopt;
  SmallVector<double> numbers;
  if (isa<FloatType>(elements.getElementType()))
    for (const APFloat &number : elements.getValues<APFloat>())
      numbers.push_back(number.convertToDouble());
  else if (elements.getElementType().isSignlessInteger())
    for (const APInt &number : elements.getValues<APInt>())
      numbers.push_back(double(number.getSExtValue()));
  if (numbers.empty() || !llvm::all_of(numbers, isWhole))
    return std::nullopt;
  linear.constant = int64_t(numbers[0]);
  linear.factors[axis] = int64_t(numbers[1]) - linear.constant;
  for (auto [i, number] : llvm::enumerate(numbers))
    if (int64_t(number) != linear.constant + int64_t(i) * linear.factors[axis])
      return std::nullopt;
  return linear;
}

// Shapes of a broadcast are aligned on the right.
static Linear broadcast(const Linear &input, RankedTensorType type) {
  Linear result{input.factors, input.constant};
  result.factors.insert(result.factors.begin(),
                        type.getRank() - input.factors.size(), 0);
  return result;
}

// A reshape that only adds or drops axes of size 1 keeps the factors of the
// others.
static std::optional<Linear>
reshape(const Linear &input, ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  Linear result{Shape(to.size(), 0), input.constant};
  size_t at = 0;
  auto skipOnes = [&] {
    while (at < from.size() && from[at] == 1)
      ++at;
  };
  for (auto [i, size] : llvm::enumerate(to)) {
    if (size == 1)
      continue;
    skipOnes();
    if (at == from.size() || from[at] != size)
      return std::nullopt;
    result.factors[i] = input.factors[at++];
  }
  skipOnes();
  return at == from.size() ? std::optional(result) : std::nullopt;
}

static std::optional<Linear> formOf(Value value, int &visits);

// Returns a + sign · b.
static std::optional<Linear> sum(Value a, Value b, int64_t sign, int &visits) {
  std::optional<Linear> result = formOf(a, visits), other = formOf(b, visits);
  if (!result || !other)
    return std::nullopt;
  result->constant += sign * other->constant;
  for (auto [factor, more] : llvm::zip_equal(result->factors, other->factors))
    factor += sign * more;
  return result;
}

static std::optional<Linear> formOfOp(Operation *op, int &visits) {
  auto type = nn::tensorType(op->getResult(0));
  if (auto iota = dyn_cast<nn::IotaOp>(op)) {
    Linear linear{Shape(type.getRank(), 0), 0};
    if (type.getDimSize(iota.getAxis()) > 1)
      linear.factors[iota.getAxis()] = 1;
    return linear;
  }
  if (auto add = dyn_cast<nn::AddOp>(op))
    return sum(add.getLhs(), add.getRhs(), 1, visits);
  if (auto sub = dyn_cast<nn::SubOp>(op))
    return sum(sub.getLhs(), sub.getRhs(), -1, visits);
  if (op->getNumOperands() != 1)
    return std::nullopt;
  std::optional<Linear> linear = formOf(op->getOperand(0), visits);
  if (!linear || isa<nn::CastOp>(op))
    return linear;
  if (isa<nn::BroadcastOp>(op))
    return broadcast(*linear, type);
  ArrayRef<int64_t> from = nn::shapeOf(op->getOperand(0));
  if (isa<nn::ReshapeOp>(op))
    return reshape(*linear, from, type.getShape());
  Linear result = *linear;
  if (auto transpose = dyn_cast<nn::TransposeOp>(op)) {
    for (auto [to, axis] : llvm::enumerate(transpose.getPermutation()))
      result.factors[to] = linear->factors[axis];
    return result;
  }
  auto slice = dyn_cast<nn::SliceOp>(op);
  if (!slice)
    return std::nullopt;
  for (auto [axis, factor] : llvm::enumerate(result.factors)) {
    result.constant += factor * slice.getOffsets()[axis];
    factor = type.getDimSize(axis) > 1 ? factor * slice.getStrides()[axis] : 0;
  }
  return result;
}

// Exporters write some ten ops. The number of visits is bounded, since sums may
// share operands again and again.
static std::optional<Linear> formOf(Value value, int &visits) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || visits-- <= 0)
    return std::nullopt;
  std::optional<Linear> linear = linearOfConstant(value);
  if (Operation *op = value.getDefiningOp(); op && !linear)
    linear = formOfOp(op, visits);
  return linear ? bounded(*linear, type) : std::nullopt;
}

static std::optional<Linear> linearOf(Value value) {
  int visits = 64;
  return formOf(value, visits);
}

// The difference of both sides must be factor · (key - row) + constant.
std::optional<Band> recognise::bandOf(Value condition) {
  auto cmp = condition.getDefiningOp<nn::CmpOp>();
  if (!cmp)
    return std::nullopt;
  std::optional<Linear> difference = linearOf(cmp.getLhs());
  std::optional<Linear> rhs = linearOf(cmp.getRhs());
  if (!difference || !rhs || difference->factors.size() < 2)
    return std::nullopt;
  difference->constant -= rhs->constant;
  for (auto [factor, other] :
       llvm::zip_equal(difference->factors, rhs->factors))
    factor -= other;
  int64_t key = difference->factors.back(), row = difference->factors.end()[-2],
          constant = difference->constant;
  if (key == 0 || row != -key ||
      !llvm::all_of(ArrayRef<int64_t>(difference->factors).drop_back(2),
                    [](int64_t factor) { return factor == 0; }))
    return std::nullopt;
  switch (cmp.getPredicate()) {
  case nn::Predicate::eq:
  case nn::Predicate::ne:
    return std::nullopt;
  case nn::Predicate::gt:
  case nn::Predicate::ge:
    key = -key, constant = -constant;
    break;
  case nn::Predicate::lt:
  case nn::Predicate::le:
    break;
  }
  // Over integers, x < 0 is x + 1 ≤ 0.
  if (cmp.getPredicate() == nn::Predicate::lt ||
      cmp.getPredicate() == nn::Predicate::gt)
    ++constant;
  // key · (s - t) ≤ -constant
  if (key > 0)
    return Band{llvm::divideFloorSigned(-constant, key), false};
  return Band{llvm::divideCeilSigned(-constant, key) - 1, true};
}

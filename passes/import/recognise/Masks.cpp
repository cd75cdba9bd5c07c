// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes masks of attention apart. An additive mask of zeros and lowest numbers
// becomes boolean, conjunctions are split, constants that keep everything
// vanish, and a lower triangle becomes the flag `causal`, with which the
// kernels skip the keys that a row does not see.
#include "passes/import/recognise/Masks.h"

#include "compiler/dialects/fsdp/Provenance.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/Sentinels.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/IR/Matchers.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

// Adding a number at or below this removes a key, as adding -inf does.
static constexpr double kLowest = -nn::kLeastSentinel;

// Returns the constant, or null.
static DenseElementsAttr constantOf(Value value) {
  DenseElementsAttr constant;
  matchPattern(value, m_Constant(&constant));
  return constant;
}

MaskConstants::Kind MaskConstants::classify(DenseElementsAttr constant,
                                            bool negated) {
  // Comparing all elements of a mask of T×S is the expensive part, and all
  // layers share the constant.
  auto [entry, fresh] = kinds.try_emplace({constant, negated}, Kind::Other);
  if (!fresh)
    return entry->second;
  auto kept = llvm::map_range(constant.getValues<bool>(),
                              [&](bool element) { return element != negated; });
  if (llvm::all_of(kept, [](bool element) { return element; }))
    return entry->second = Kind::KeepsAll;
  // A triangle depends on the last two axes only.
  ArrayRef<int64_t> shape =
      cast<RankedTensorType>(constant.getType()).getShape();
  auto isOne = [](int64_t size) { return size == 1; };
  if (shape.size() < 2 || !llvm::all_of(shape.drop_back(2), isOne))
    return entry->second;
  int64_t queries = shape.end()[-2], keys = shape.back(), place = 0;
  // Also where queries and keys differ in number, as with a cache: aligned at
  // the last of each.
  bool isTriangle = llvm::all_of(kept, [&](bool element) {
    int64_t row = place / keys, column = place % keys;
    ++place;
    return element == (column <= row + (keys - queries));
  });
  return entry->second = isTriangle ? Kind::Triangle : Kind::Other;
}

MaskConstants::Kept MaskConstants::keptBy(DenseElementsAttr constant) {
  auto [entry, fresh] = kept.try_emplace(constant);
  if (!fresh)
    return entry->second;
  SmallVector<bool> keys;
  bool byNumbers = false;
  // A mask with other numbers, such as a relative position bias, has no boolean
  // form.
  for (const APFloat &element : constant.getValues<APFloat>()) {
    double number = element.convertToDouble();
    if (number != 0 && !(number <= kLowest))
      return {};
    byNumbers |= number != 0 && !std::isinf(number);
    keys.push_back(number == 0);
  }
  auto type = RankedTensorType::get(
      cast<RankedTensorType>(constant.getType()).getShape(),
      IntegerType::get(constant.getContext(), 1));
  return entry->second = {DenseElementsAttr::get(type, keys), byNumbers};
}

// Returns true if a boolean mask keeps key t + keys - queries for every query
// t.
static bool keepsDiagonal(DenseElementsAttr constant, bool negated,
                          int64_t queries, int64_t keys) {
  ArrayRef<int64_t> shape =
      cast<RankedTensorType>(constant.getType()).getShape();
  if (keys < queries || shape.size() < 2)
    return false;
  int64_t rows = shape.end()[-2], columns = shape.back();
  auto elements = constant.getValues<bool>();
  for (int64_t matrix = 0, n = constant.getNumElements(); matrix < n;
       matrix += rows * columns)
    for (int64_t t = 0; t < queries; ++t) {
      int64_t row = rows == 1 ? 0 : t;
      int64_t column = columns == 1 ? 0 : t + keys - queries;
      if (elements[matrix + row * columns + column] == negated)
        return false;
    }
  return true;
}

void Masks::keepConstant(DenseElementsAttr constant, Value value,
                         bool negated) {
  MaskConstants::Kind kind = known->classify(constant, negated);
  // Nothing to remember: all keys stay.
  if (kind == MaskConstants::Kind::KeepsAll)
    return;
  keepsOwnKeys &= keepsDiagonal(constant, negated, queries, keys);
  ArrayRef<int64_t> shape =
      cast<RankedTensorType>(constant.getType()).getShape();
  // A triangle of another size is broadcast over the scores in some way that is
  // not causal.
  if (kind == MaskConstants::Kind::Triangle && shape.end()[-2] == queries &&
      shape.back() == keys) {
    causal = true;
    return;
  }
  // It is neither a triangle nor trivial, so it stays a condition.
  conditions.push_back({value, negated});
}

// Recognises the same masks as constants do, at any length.
void Masks::keepBand(Value value, const Band &band, bool negated) {
  ArrayRef<int64_t> shape = nn::shapeOf(value);
  int64_t rows = shape.end()[-2], columns = shape.back();
  bool keepsUpTo = band.after == negated;
  bool keepsAll = keepsUpTo ? band.last >= columns - 1 : band.last <= -rows;
  if (keepsAll)
    return;
  bool keepsDiagonal = keepsUpTo == (band.last >= keys - queries);
  keepsOwnKeys &=
      keepsDiagonal && queries <= keys && rows == queries && columns == keys;
  if (keepsUpTo && band.last == keys - queries && rows == queries &&
      columns == keys)
    causal = true;
  else
    conditions.push_back({value, negated});
}

static bool holds(nn::Predicate predicate, double a, double b) {
  switch (predicate) {
  case nn::Predicate::eq:
    return a == b;
  case nn::Predicate::ne:
    return a != b;
  case nn::Predicate::lt:
    return a < b;
  case nn::Predicate::le:
    return a <= b;
  case nn::Predicate::gt:
    return a > b;
  case nn::Predicate::ge:
    return a >= b;
  }
  llvm_unreachable("covered above");
}

// Returns the choice between two numbers if comparing it with a third, as in
// tril(ones) == 0, gives its condition or, if `negated` is then set, the
// opposite; otherwise null.
static nn::SelectOp choiceOf(Value value, bool &negated) {
  auto cmp = value.getDefiningOp<nn::CmpOp>();
  if (!cmp)
    return nullptr;
  auto choice = throughBroadcasts(cmp.getLhs()).getDefiningOp<nn::SelectOp>();
  std::optional<double> number = nn::matchSplat(cmp.getRhs());
  if (!choice || !number)
    return nullptr;
  std::optional<double> onTrue = nn::matchSplat(choice.getOnTrue());
  std::optional<double> onFalse = nn::matchSplat(choice.getOnFalse());
  if (!onTrue || !onFalse)
    return nullptr;
  negated = !holds(cmp.getPredicate(), *onTrue, *number);
  return negated == holds(cmp.getPredicate(), *onFalse, *number) ? choice
                                                                 : nullptr;
}

// Splits conjunctions, so that each part can be recognised on its own: a causal
// triangle is often combined with a padding mask.
void Masks::keepParts(Value mask, bool isNegated) {
  // Each part once, since conjunctions may share parts again and again, and
  // without recursion, since a chain of them may be long.
  SmallVector<Condition> pending = {{mask, isNegated}};
  DenseSet<std::pair<Value, unsigned>> seen;
  while (!pending.empty()) {
    auto [value, negated] = pending.pop_back_val();
    value = throughBroadcasts(value);
    if (!seen.insert({value, negated}).second)
      continue;
    bool isOpposite = false;
    if (DenseElementsAttr constant = constantOf(value)) {
      keepConstant(constant, value, negated);
    } else if (auto inverse = value.getDefiningOp<nn::NotOp>()) {
      // not(a) keeps what a hides.
      pending.push_back({inverse.getInput(), !negated});
    } else if (negated ? isa_and_nonnull<nn::OrOp>(value.getDefiningOp())
                       : isa_and_nonnull<nn::AndOp>(value.getDefiningOp())) {
      // Both halves are true for a kept key, so the parts are independent
      // conditions; by De Morgan, not(a or b) is not(a) and not(b).
      for (Value half : llvm::reverse(value.getDefiningOp()->getOperands()))
        pending.push_back({half, negated});
    } else if (nn::SelectOp choice = choiceOf(value, isOpposite)) {
      pending.push_back({choice.getCondition(), negated != isOpposite});
    } else if (std::optional<Band> band = bandOf(value)) {
      keepBand(value, *band, negated);
    } else {
      keepsOwnKeys = false;
      conditions.push_back({value, negated});
    }
  }
}

bool Masks::keep(Value value, bool negated, double number) {
  bool isFinite = !std::isinf(number);
  if (!(number <= kLowest) || (isFinite && reading == FiniteMasks::Add))
    return false;
  hidesByNumbers |= isFinite;
  keepParts(value, negated);
  return true;
}

// Adds an additive constant in boolean form. Returns false if it has none.
bool Masks::addConstant(DenseElementsAttr constant, Value mask) {
  MaskConstants::Kept kept = known->keptBy(constant);
  if (!kept.keys || (kept.byNumbers && reading == FiniteMasks::Add))
    return false;
  hidesByNumbers |= kept.byNumbers;
  // The constant is additive, so the condition that was just added holds the
  // wrong value. It is replaced by the boolean constant.
  size_t before = conditions.size();
  keepConstant(kept.keys, mask, /*negated=*/false);
  if (conditions.size() > before) {
    conditions.resize(before);
    constants.push_back(kept.keys);
  }
  return true;
}

// Adding a very negative number and hiding a key have the same effect after the
// softmax, provided that the factor is positive.
bool Masks::add(Value mask, double factor) {
  mask = throughBroadcasts(mask);
  if (auto select = mask.getDefiningOp<nn::SelectOp>()) {
    std::optional<double> onTrue = nn::matchSplat(select.getOnTrue());
    std::optional<double> onFalse = nn::matchSplat(select.getOnFalse());
    if (onTrue && onFalse && factor > 0 &&
        ((*onTrue == 0 && keep(select.getCondition(), false, *onFalse)) ||
         (*onFalse == 0 && keep(select.getCondition(), true, *onTrue))))
      return true;
  }
  if (DenseElementsAttr constant = constantOf(mask);
      constant && factor > 0 && addConstant(constant, mask))
    return true;
  // A mask that depends on a parameter may need a gradient, so it stays an
  // addition to the scores.
  if (factor != 1 || fsdp::dependsOnLoad(mask))
    return false;
  additive.push_back(mask);
  return true;
}

// Adding a smaller number to kLowest changes nothing in f32.
static constexpr double kSmall = 1e20;

// Returns true if the elements are known and too small to hide a key, or to
// bring back one that kLowest hides.
static bool isSmall(Value mask) {
  DenseElementsAttr constant = constantOf(mask);
  return constant &&
         llvm::all_of(constant.getValues<APFloat>(),
                      [](const APFloat &element) {
                        return std::abs(element.convertToDouble()) < kSmall;
                      });
}

bool Masks::isExact() const {
  return !hidesByNumbers || (keepsOwnKeys && llvm::all_of(additive, isSmall));
}

// Extends a mask to rank 4. Shapes are aligned on the right, and scores of rank
// 3 count as B×1×T×S.
Value Masks::toRank4(recognise::Builder &b, Value value) const {
  Shape shape(nn::shapeOf(value));
  if (isRank3 && shape.size() == 3)
    shape.insert(shape.begin() + 1, 1);
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  return b.reshape(value, shape);
}

// Combines what remains: booleans by and, then additive masks by addition.
Value Masks::build(recognise::Builder &b) const {
  SmallVector<Value> kept;
  for (DenseElementsAttr constant : constants)
    kept.push_back(
        toRank4(b, b.create<nn::ConstantOp>(constant.getType(), constant)));
  for (Condition condition : conditions) {
    Value value = condition.value;
    if (condition.negated)
      value = b.create<nn::NotOp>(value.getType(), value);
    kept.push_back(toRank4(b, value));
  }
  // Broadcasts both to their common shape.
  auto unite = [&](Value &a, Value &other) {
    Shape shape;
    for (auto [x, y] : llvm::zip(nn::shapeOf(a), nn::shapeOf(other)))
      shape.push_back(std::max(x, y));
    a = b.broadcast(a, shape);
    other = b.broadcast(other, shape);
    return a.getType();
  };
  Value mask;
  for (Value next : kept) {
    if (mask) {
      Type type = unite(mask, next);
      mask = nn::tensorType(mask) == type
                 ? b.create<nn::AndOp>(type, mask, next).getResult()
                 : mask;
    } else {
      mask = next;
    }
  }
  if (additive.empty())
    return mask;
  // Booleans become additive where they meet an additive mask: 0 keeps a key,
  // minus infinity hides it. With a finite number the weights of a row without
  // keys could not be computed again from their log-sum-exp.
  if (mask) {
    auto type = RankedTensorType::get(
        nn::shapeOf(mask), nn::tensorType(additive[0]).getElementType());
    Value zero = nn::splat(b.rewriter, b.root->getLoc(), type, 0);
    Value none = nn::splat(b.rewriter, b.root->getLoc(), type,
                           -std::numeric_limits<double>::infinity());
    mask = b.create<nn::SelectOp>(type, mask, zero, none);
  }
  for (Value next : additive) {
    next = toRank4(b, next);
    if (mask) {
      Type type = unite(mask, next);
      mask = b.create<nn::AddOp>(type, mask, next);
    } else {
      mask = next;
    }
  }
  return mask;
}

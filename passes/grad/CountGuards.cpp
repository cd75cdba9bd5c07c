// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Masks and weights are not negative, so one has an element above 0 if and only
// if its sum and its maximum are. A mean without targets is 0 / 0, which is
// NaN, and models replace that as well.
#include "passes/grad/CountGuards.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/Linearity.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include <cmath>

using namespace mlir;

namespace fsdpc::passes {

bool isSingle(Value value) {
  return nn::tensorType(value).getNumElements() == 1;
}

bool passesOn(Operation *op) {
  if (nn::keepsValue(op))
    return nn::linearityIn(op->getOpOperand(0)) == nn::Linearity::Term;
  auto moves = dyn_cast<nn::ElementSourceOpInterface>(op);
  if (!moves || op->getNumOperands() != 1)
    return false;
  auto sources = moves.getElementSources();
  return sources.size() == 1 && sources.front().conditions.empty() &&
         (!sources.front().map || isSingle(op->getOperand(0)));
}

// Returns true for comparisons that hold where the left side is above 0, if
// that is not negative.
static bool isAboveZero(nn::CmpOp compare) {
  return nn::matchSplat(compare.getRhs()) == 0.0 &&
         (compare.getPredicate() == nn::Predicate::gt ||
          compare.getPredicate() == nn::Predicate::ne);
}

// Returns true for products with a constant above 0, and quotients by one that
// are not rounded to integers.
static bool isPositiveMultiple(Operation *op) {
  return isa<nn::MulOp, nn::DivOp>(op) &&
         nn::linearityIn(op->getOpOperand(0)) != nn::Linearity::None &&
         nn::matchSplat(op->getOperand(1)).value_or(0) > 0;
}

Value countedBy(Value count, const SampleFlow &flow) {
  while (Operation *op = count.getDefiningOp()) {
    auto reduce = dyn_cast<nn::ReduceOp>(op);
    auto compare = dyn_cast<nn::CmpOp>(op);
    bool isCount = reduce && (reduce.getKind() == nn::ReduceKind::sum ||
                              reduce.getKind() == nn::ReduceKind::max);
    if (!isCount && !nn::keepsValue(op) && !passesOn(op) &&
        !isPositiveMultiple(op) && !(compare && isAboveZero(compare)))
      break;
    count = op->getOperand(0);
  }
  return flow.firstOf(count);
}

// Returns true for one number that is a sum or a maximum over samples. Where it
// is cut to an integer, 0.4 has become 0.
static bool isCount(Value value, const SampleFlow &flow) {
  if (!isSingle(value))
    return false;
  while (Operation *op = value.getDefiningOp()) {
    if (auto reduce = dyn_cast<nn::ReduceOp>(op);
        reduce && reduce.getKind() == nn::ReduceKind::max)
      return isSingle(value) && flow.combines(value);
    if (!passesOn(op))
      break;
    value = op->getOperand(0);
  }
  Samples kind = flow.of(value).kind;
  return isSingle(value) && (kind == Samples::Sum || kind == Samples::Mean);
}

// Compares a count with a number: nothing unless that tells 0 from the others.
static std::optional<bool> ifAbove(nn::Predicate predicate, double number) {
  bool isBelowOne = number >= 0 && number < 1,
       isUpToOne = number > 0 && number <= 1;
  switch (predicate) {
  case nn::Predicate::gt:
    return isBelowOne ? std::optional(true) : std::nullopt;
  case nn::Predicate::ge:
    return isUpToOne ? std::optional(true) : std::nullopt;
  case nn::Predicate::ne:
    return number == 0 ? std::optional(true) : std::nullopt;
  case nn::Predicate::le:
    return isBelowOne ? std::optional(false) : std::nullopt;
  case nn::Predicate::lt:
    return isUpToOne ? std::optional(false) : std::nullopt;
  case nn::Predicate::eq:
    return number == 0 ? std::optional(false) : std::nullopt;
  }
  llvm_unreachable("all predicates return");
}

std::optional<Presence> presenceOf(Value condition, const SampleFlow &flow) {
  if (flow.readsOthers(condition) || !flow.combines(condition))
    return std::nullopt;
  bool ifAny = true, isTest = false;
  while (Operation *op = condition.getDefiningOp()) {
    isTest |= nn::tensorType(condition).getElementType().isInteger(1);
    if (auto compare = dyn_cast<nn::CmpOp>(op)) {
      std::optional<double> number = nn::matchSplat(compare.getRhs());
      auto above =
          number ? ifAbove(compare.getPredicate(), *number) : std::nullopt;
      if (!above || !isCount(compare.getLhs(), flow))
        return std::nullopt;
      Value counted = countedBy(compare.getLhs(), flow);
      // Weights that are fractions may have a sum between 0 and the number.
      if (*number != 0 && !nn::tensorType(counted).getElementType().isInteger())
        return std::nullopt;
      bool isEquality = compare.getPredicate() == nn::Predicate::eq ||
                        compare.getPredicate() == nn::Predicate::ne;
      return Presence{counted, *above == ifAny, !isEquality};
    }
    if (isa<nn::NotOp>(op))
      ifAny = !ifAny;
    else if (!nn::keepsValue(op) && !passesOn(op))
      break;
    condition = op->getOperand(0);
  }
  if (!isTest || !isCount(condition, flow))
    return std::nullopt;
  return Presence{countedBy(condition, flow), ifAny};
}

// Returns true for `x == x` and `x != inf`, and their opposites.
static bool comparesFinite(nn::CmpOp compare) {
  bool isEquality = compare.getPredicate() == nn::Predicate::eq ||
                    compare.getPredicate() == nn::Predicate::ne;
  bool isInfinite = std::isinf(nn::matchSplat(compare.getRhs()).value_or(0));
  return isEquality && (isInfinite || compare.getLhs() == compare.getRhs());
}

// Infinities of one sign, as nan_to_num tells them apart: returns the place of
// the test for infinity if the other operand is the comparison with 0.
std::optional<unsigned> FiniteTests::ofOneSign(Operation *op) const {
  if (isa<nn::AndOp>(op))
    for (unsigned place : {1u, 0u}) {
      auto sign = op->getOperand(1 - place).getDefiningOp<nn::CmpOp>();
      if (sign && nn::matchSplat(sign.getRhs()) == 0.0 &&
          known.lookup(op->getOperand(place)))
        return place;
    }
  return std::nullopt;
}

// Tests may be joined by logical ops, and moved.
bool FiniteTests::joins(Operation *op) const {
  return isa<nn::ElementwiseOpInterface, nn::ElementSourceOpInterface>(op) &&
         op->getNumOperands() > 0 &&
         llvm::all_of(op->getOperands(),
                      [&](Value operand) { return known.lookup(operand); });
}

// Operands first. All that is asked of a value is remembered, since tests may
// share others again and again.
bool FiniteTests::holds(Value condition) {
  SmallVector<Value> pending = {condition};
  while (!pending.empty()) {
    Value value = pending.back();
    Operation *op = value.getDefiningOp();
    if (known.contains(value) || !op) {
      pending.pop_back();
      continue;
    }
    auto compare = dyn_cast<nn::CmpOp>(op);
    size_t before = pending.size();
    if (!compare)
      for (Value operand : op->getOperands())
        if (nn::tensorType(operand).getElementType().isInteger(1) &&
            operand.getDefiningOp() && !known.contains(operand))
          pending.push_back(operand);
    if (pending.size() > before)
      continue;
    known[value] = compare ? comparesFinite(compare)
                           : ofOneSign(op).has_value() || joins(op);
    pending.pop_back();
  }
  return known.lookup(condition);
}

Uses FiniteTests::readsOf(Value condition) const {
  Uses reads;
  SmallVector<Value> pending = {condition};
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    MutableArrayRef<OpOperand> operands = op->getOpOperands();
    if (!reads.insert(&operands[0]).second)
      continue;
    for (OpOperand &operand : operands)
      reads.insert(&operand);
    if (auto compare = dyn_cast<nn::CmpOp>(op)) {
      if (auto abs = compare.getLhs().getDefiningOp<nn::AbsOp>())
        reads.insert(&abs->getOpOperand(0));
    } else if (std::optional<unsigned> infinite = ofOneSign(op)) {
      auto sign = operands[1 - *infinite].get().getDefiningOp<nn::CmpOp>();
      reads.insert(&sign->getOpOperand(0));
      pending.push_back(operands[*infinite].get());
    } else {
      llvm::append_range(pending, op->getOperands());
    }
  }
  return reads;
}

} // namespace fsdpc::passes

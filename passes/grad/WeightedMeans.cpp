// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The search goes from the loss to its terms, as long as the loss is linear in
// what it meets: a mean whose square or logarithm counts is no sum over
// targets. A factor that depends on the inputs ends it too: such a model undoes
// the mean itself, as by multiplying it with the number of targets.
#include "passes/grad/WeightedMeans.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include <algorithm>

using namespace mlir;

namespace fsdpc::passes {
namespace {

// What a value depends on.
struct Dependence {
  bool inputs = false, others = false; // parameters, buffers, random numbers
};

bool isSingle(Value value) {
  return nn::tensorType(value).getNumElements() == 1;
}

class Search {
public:
  explicit Search(Block &body) {
    for (BlockArgument argument : body.getArguments())
      dependences[argument].inputs = true;
    for (Operation &op : body) {
      Dependence all;
      all.others =
          op.getNumOperands() == 0 && !isa<nn::ConstantOp, nn::IotaOp>(op);
      for (Value operand : op.getOperands()) {
        all.inputs |= of(operand).inputs;
        all.others |= of(operand).others;
      }
      for (Value result : op.getResults())
        dependences[result] = all;
    }
  }

  void visit(Value value);
  FoundMeans found;

private:
  Dependence of(Value value) const { return dependences.lookup(value); }
  void visitProduct(nn::MulOp product);
  void visitQuotient(nn::DivOp quotient);
  bool takeQuotient(Value mean, nn::DivOp quotient);
  template <typename OpTy> bool visitEntropy(Operation *op);
  bool takeDivisor(Value divisor, WeightedMean &mean) const;
  bool isSum(Value value) const;

  DenseMap<Value, Dependence> dependences;
  DenseSet<Value> seen;
};

// Returns true if the value is a sum over elements of several samples: each
// microbatch has another one. A quotient by anything else, such as by an input
// that holds the number of the step's targets, stays as it is.
bool Search::isSum(Value value) const {
  Operation *op = value.getDefiningOp();
  while (isa_and_nonnull<nn::ReshapeOp, nn::CastOp>(op))
    op = op->getOperand(0).getDefiningOp();
  auto reduce = dyn_cast_or_null<nn::ReduceOp>(op);
  return reduce && reduce.getKind() == nn::ReduceKind::sum &&
         isSingle(reduce.getResult()) && !isSingle(reduce.getInput());
}

// Takes a divisor apart, from outside: it is scale · (max(value, atLeast) +
// plus). Returns false if it is no function of a sum.
bool Search::takeDivisor(Value value, WeightedMean &mean) const {
  double atLeast = -std::numeric_limits<double>::infinity(), plus = 0;
  while (!isSum(value)) {
    Operation *op = value.getDefiningOp();
    if (!op || !isSingle(value)) {
      auto repeated = dyn_cast_or_null<nn::BroadcastOp>(op);
      if (!repeated || !isSingle(repeated.getInput()))
        return false;
    }
    if (isa<nn::ReshapeOp, nn::CastOp, nn::BroadcastOp>(op)) {
      value = op->getOperand(0);
      continue;
    }
    // Clamp: x <= c ? c : x.
    if (auto select = dyn_cast<nn::SelectOp>(op)) {
      auto compare = select.getCondition().getDefiningOp<nn::CmpOp>();
      std::optional<double> bound = nn::matchSplat(select.getOnTrue());
      bool isClamp = compare && bound &&
                     compare.getLhs() == select.getOnFalse() &&
                     nn::matchSplat(compare.getRhs()) == bound &&
                     (compare.getPredicate() == nn::Predicate::le ||
                      compare.getPredicate() == nn::Predicate::lt);
      if (!isClamp)
        return false;
      atLeast = std::max(atLeast, *bound);
      value = select.getOnFalse();
      continue;
    }
    if (op->getNumOperands() != 2)
      return false;
    std::optional<double> right = nn::matchSplat(op->getOperand(1)),
                          left = nn::matchSplat(op->getOperand(0));
    std::optional<double> number = right ? right : left;
    if (!number)
      return false;
    if (isa<nn::MaximumOp>(op)) {
      atLeast = std::max(atLeast, *number);
    } else if (isa<nn::AddOp>(op)) {
      atLeast -= *number;
      plus += *number;
    } else if (isa<nn::MulOp>(op) && *number > 0) {
      atLeast /= *number;
      plus /= *number;
    } else if (isa<nn::DivOp>(op) && right && *number > 0) {
      atLeast *= *number;
      plus *= *number;
    } else {
      return false;
    }
    value = op->getOperand(right ? 0 : 1);
  }
  if (plus < 0)
    return false;
  mean.weight = value;
  mean.atLeast = std::max(atLeast, 0.0);
  mean.plus = plus;
  return true;
}

void Search::visitQuotient(nn::DivOp quotient) {
  Value divisor = quotient.getRhs();
  Dependence on = of(divisor);
  if (!on.inputs)
    return visit(quotient.getLhs());
  takeQuotient(quotient.getResult(), quotient);
}

// Notes `value`, which is a sum times or over what the quotient divides by.
// Returns false if that is no function of a sum.
bool Search::takeQuotient(Value value, nn::DivOp quotient) {
  WeightedMean mean;
  mean.mean = value;
  mean.quotient = quotient;
  if (!takeDivisor(quotient.getRhs(), mean))
    return false;
  if (of(quotient.getRhs()).others)
    found.others.push_back(value.getDefiningOp());
  else
    found.means.push_back(mean);
  return true;
}

// Returns the division of `1 / weight`, or null.
nn::DivOp reciprocalIn(Value factor) {
  Operation *op = factor.getDefiningOp();
  while (isa_and_nonnull<nn::ReshapeOp, nn::CastOp, nn::BroadcastOp>(op))
    op = op->getOperand(0).getDefiningOp();
  auto quotient = dyn_cast_or_null<nn::DivOp>(op);
  bool isConstant = quotient && nn::matchSplat(quotient.getLhs());
  return isConstant ? quotient : nullptr;
}

// Of a product whose one factor depends on inputs alone, as a mask does, a
// quotient may be on either side. Scalars of that kind undo means.
void Search::visitProduct(nn::MulOp product) {
  Value left = product.getLhs(), right = product.getRhs();
  for (auto [factor, other] :
       {std::pair(left, right), std::pair(right, left)}) {
    if (!of(factor).inputs)
      return visit(other);
    if (nn::DivOp quotient = reciprocalIn(factor))
      if (takeQuotient(product.getResult(), quotient))
        return;
    if (of(factor).others || isSingle(factor))
      continue;
    // The mask may have been divided, and not the product.
    if (auto divided = factor.getDefiningOp<nn::DivOp>();
        divided && of(divided.getRhs()).inputs)
      return visit(factor);
    return visit(other);
  }
}

template <typename OpTy> bool Search::visitEntropy(Operation *op) {
  auto entropy = dyn_cast<OpTy>(op);
  if (!entropy)
    return false;
  if (entropy.getReduction() != nn::Reduction::mean ||
      (!entropy.getIgnoreIndex() && !entropy.getWeights()))
    return true;
  Dependence on = of(entropy.getTargets());
  on.others |= entropy.getWeights() && of(entropy.getWeights()).others;
  WeightedMean mean;
  mean.mean = entropy.getLoss();
  if (on.others)
    found.others.push_back(op);
  else if (on.inputs)
    found.means.push_back(mean);
  return true;
}

void Search::visit(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !seen.insert(value).second)
    return;
  if (visitEntropy<nn::CrossEntropyOp>(op) ||
      visitEntropy<nn::LinearCrossEntropyOp>(op))
    return;
  if (auto quotient = dyn_cast<nn::DivOp>(op))
    return visitQuotient(quotient);
  if (auto product = dyn_cast<nn::MulOp>(op))
    return visitProduct(product);
  if (isa<nn::AddOp, nn::SubOp, nn::ConcatOp>(op)) {
    llvm::for_each(op->getOperands(), [&](Value term) { visit(term); });
  } else if (isa<nn::NegOp, nn::ReshapeOp, nn::CastOp, nn::BroadcastOp,
                 nn::CopyOp>(op)) {
    visit(op->getOperand(0));
  } else if (auto reduce = dyn_cast<nn::ReduceOp>(op)) {
    if (reduce.getKind() == nn::ReduceKind::sum)
      visit(reduce.getInput());
  } else if (auto select = dyn_cast<nn::SelectOp>(op)) {
    // A model may guard against a divisor of 0.
    if (nn::matchSplat(select.getOnTrue()) == 0)
      visit(select.getOnFalse());
    else if (nn::matchSplat(select.getOnFalse()) == 0)
      visit(select.getOnTrue());
  }
}

} // namespace

FoundMeans findMeans(Block &body, Value loss) {
  Search search(body);
  search.visit(loss);
  return std::move(search.found);
}

} // namespace fsdpc::passes

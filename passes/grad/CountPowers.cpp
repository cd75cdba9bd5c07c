// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A count is read from outside: bounds and constants are taken off until a sum
// over samples is left. Powers of it follow from products, quotients, roots,
// and exponentials of logarithms.
#include "passes/grad/CountPowers.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/Linearity.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/grad/CountGuards.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace fsdpc::passes {
namespace {

using Power = std::optional<CountPower>;

// A model may reuse a factor in each of many factors.
constexpr int kMostOps = 64;

// Returns true for quotients of integers.
bool isRounded(Operation *op) {
  return isa<nn::DivOp>(op) &&
         nn::linearityIn(op->getOpOperand(0)) == nn::Linearity::None;
}

// A number that an op adds, multiplies or compares with.
struct Constant {
  double number;
  unsigned place; // of the operand
};

std::optional<Constant> constantOf(Operation *op) {
  for (unsigned place : {1u, 0u})
    if (op->getNumOperands() == 2)
      if (std::optional<double> number = nn::matchSplat(op->getOperand(place)))
        return Constant{*number, place};
  return std::nullopt;
}

// Returns true for sums over samples, and for such sums over the number of
// their terms.
bool isTotal(Value value, const SampleFlow &flow) {
  Samples kind = flow.of(value).kind;
  return kind == Samples::Sum || kind == Samples::Mean;
}

// Returns true if the value is a sum over elements of several samples, or a
// mean, and not a multiple of another one.
bool isSum(Value value, const SampleFlow &flow) {
  if (!isTotal(value, flow))
    return false;
  Operation *op = value.getDefiningOp();
  while (isa_and_nonnull<nn::ReshapeOp, nn::CastOp>(op))
    op = op->getOperand(0).getDefiningOp();
  if (flow.readsOthers(value)) {
    auto reduce = dyn_cast_or_null<nn::ReduceOp>(op);
    return reduce && reduce.getKind() == nn::ReduceKind::sum &&
           isSingle(reduce.getResult()) && !isSingle(reduce.getInput());
  }
  bool scales = isa_and_nonnull<nn::MulOp, nn::DivOp>(op);
  return !scales && !isa_and_nonnull<nn::BroadcastOp>(op);
}

// max(x, atLeast) + plus.
struct Bound {
  std::optional<double> atLeast;
  double plus = 0;

  void raiseTo(double least) {
    atLeast = std::max(atLeast.value_or(least), least);
  }
  // Of x + number.
  void add(double number) {
    if (atLeast)
      *atLeast -= number;
    plus += number;
  }
  // Of x over the factor.
  void multiply(double factor) {
    if (atLeast)
      *atLeast *= factor;
    plus *= factor;
  }
};

// The reader of one factor.
class Reader {
public:
  explicit Reader(const SampleFlow &flow) : flow(flow) {}

  Power power(Value value);

  /// Returns true if all guards on the way have tested the count.
  bool hasGuardsOf(const CountPower &power) const {
    return llvm::all_of(guards, [&](Value counted) {
      return power.count && counted == countedBy(power.count->weight, flow);
    });
  }

private:
  std::optional<Count> count(Value value);
  Value unguarded(Operation *op);
  Power exponentOf(Value value);
  Power raise(Power power, std::optional<double> exponent) const;

  const SampleFlow &flow;
  int left = kMostOps;
  SmallVector<Value> guards; // what they test
};

// Returns what a guard takes where there are targets: a choice between that and
// a number, or `count + (count == 0)`. Returns null for other ops.
Value Reader::unguarded(Operation *op) {
  if (auto select = dyn_cast<nn::SelectOp>(op)) {
    auto presence = presenceOf(select.getCondition(), flow);
    if (!presence)
      return nullptr;
    Value some = select.getOnTrue(), none = select.getOnFalse();
    if (!presence->ifAny)
      std::swap(some, none);
    if (!nn::matchSplat(none))
      return nullptr;
    guards.push_back(presence->counted);
    return some;
  }
  if (isa<nn::AddOp>(op))
    for (unsigned place : {1u, 0u}) {
      auto presence = presenceOf(op->getOperand(place), flow);
      if (!presence || presence->ifAny)
        continue;
      guards.push_back(presence->counted);
      return op->getOperand(1 - place);
    }
  return nullptr;
}

// `value` is scale · (max(weight, atLeast) + plus). A bound of 0 or less is
// only met by weights of both signs. What is added to a mean is part of it.
std::optional<Count> Reader::count(Value value) {
  Bound bound;
  Value total; // the outermost
  auto take = [&](Value next) {
    value = next;
    if (!total && isTotal(value, flow))
      total = value;
  };
  take(value);
  // Bounded, since each factor of a long product asks.
  for (int ops = 0; !isSum(value, flow); ++ops) {
    Operation *op = value.getDefiningOp();
    if (!op || ops == kMostOps)
      return std::nullopt;
    if (passesOn(op)) {
      take(op->getOperand(0));
      continue;
    }
    if (Value some = unguarded(op)) {
      take(some);
      continue;
    }
    // Clamp: x <= c ? c : x.
    if (auto select = dyn_cast<nn::SelectOp>(op)) {
      auto compare = select.getCondition().getDefiningOp<nn::CmpOp>();
      std::optional<double> least = nn::matchSplat(select.getOnTrue());
      bool isClamp = compare && least &&
                     compare.getLhs() == select.getOnFalse() &&
                     nn::matchSplat(compare.getRhs()) == least &&
                     (compare.getPredicate() == nn::Predicate::le ||
                      compare.getPredicate() == nn::Predicate::lt);
      if (!isClamp)
        return std::nullopt;
      bound.raiseTo(*least);
      take(select.getOnFalse());
      continue;
    }
    std::optional<Constant> with = constantOf(op);
    if (!with || isRounded(op))
      return std::nullopt;
    double number = with->number;
    if (isa<nn::MaximumOp>(op)) {
      bound.raiseTo(number);
    } else if (isa<nn::AddOp>(op)) {
      bound.add(number);
    } else if (isa<nn::MulOp>(op) && number > 0) {
      bound.multiply(1 / number);
    } else if (isa<nn::DivOp>(op) && with->place == 1 && number > 0) {
      bound.multiply(number);
    } else {
      return std::nullopt;
    }
    take(op->getOperand(1 - with->place));
  }
  bool ofMean = flow.of(total).kind == Samples::Mean;
  double atLeast = bound.atLeast.value_or(0);
  if (bound.plus < 0 || !isSingle(value) || (bound.atLeast && atLeast <= 0))
    return std::nullopt;
  return Count{flow.firstOf(value), atLeast, bound.plus, ofMean};
}

// An even power of a count below 0 has lost its sign: sqrt(count²) is |count|.
Power Reader::raise(Power power, std::optional<double> exponent) const {
  if (!power || !exponent)
    return std::nullopt;
  auto isEven = [](double number) { return std::fmod(number, 2) == 0; };
  double raised = power->exponent * *exponent;
  if (power->exponent != 0 && isEven(power->exponent) && !isEven(raised))
    return std::nullopt;
  power->exponent = raised;
  return power;
}

Power Reader::power(Value value) {
  if (!flow.readsInputs(value))
    return CountPower();
  size_t known = guards.size();
  if (std::optional<Count> found = count(value))
    return CountPower{found, 1};
  guards.truncate(known);
  Operation *op = value.getDefiningOp();
  if (!op || --left < 0)
    return std::nullopt;
  if (passesOn(op))
    return power(op->getOperand(0));
  if (Value some = unguarded(op))
    return power(some);
  if (isa<nn::SqrtOp, nn::RsqrtOp>(op))
    return raise(power(op->getOperand(0)), isa<nn::SqrtOp>(op) ? 0.5 : -0.5);
  if (isa<nn::PowOp>(op))
    return raise(power(op->getOperand(0)), nn::matchSplat(op->getOperand(1)));
  if (isa<nn::ExpOp>(op))
    return exponentOf(op->getOperand(0));
  if (!isa<nn::MulOp, nn::DivOp>(op) || isRounded(op))
    return std::nullopt;
  Power left = power(op->getOperand(0)), right = power(op->getOperand(1));
  if (isa<nn::DivOp>(op))
    right = raise(right, -1);
  return left && right ? product(*left, *right) : std::nullopt;
}

// exp(value) is the power.
Power Reader::exponentOf(Value value) {
  if (!flow.readsInputs(value))
    return CountPower();
  Operation *op = value.getDefiningOp();
  if (!op || --left < 0)
    return std::nullopt;
  if (passesOn(op))
    return exponentOf(op->getOperand(0));
  if (isa<nn::LogOp>(op))
    return power(op->getOperand(0));
  if (isa<nn::NegOp>(op))
    return raise(exponentOf(op->getOperand(0)), -1);
  if (isa<nn::AddOp, nn::SubOp>(op)) {
    Power left = exponentOf(op->getOperand(0)),
          right = exponentOf(op->getOperand(1));
    if (isa<nn::SubOp>(op))
      right = raise(right, -1);
    return left && right ? product(*left, *right) : std::nullopt;
  }
  std::optional<Constant> with = constantOf(op);
  if (!with || !isa<nn::MulOp, nn::DivOp>(op))
    return std::nullopt;
  bool divides = isa<nn::DivOp>(op);
  if (divides && with->place == 0)
    return std::nullopt;
  return raise(exponentOf(op->getOperand(1 - with->place)),
               divides ? 1 / with->number : with->number);
}

} // namespace

Power powerOf(Value value, const SampleFlow &flow) {
  Reader reader(flow);
  Power power = reader.power(value);
  return power && reader.hasGuardsOf(*power) ? power : std::nullopt;
}

Power product(const CountPower &one, const CountPower &other) {
  if (!one.count || one.exponent == 0)
    return other;
  if (!other.count || other.exponent == 0)
    return one;
  if (one.count->weight != other.count->weight ||
      one.count->atLeast != other.count->atLeast ||
      one.count->plus != other.count->plus ||
      one.count->isMean != other.count->isMean)
    return std::nullopt;
  return CountPower{one.count, one.exponent + other.exponent};
}

} // namespace fsdpc::passes

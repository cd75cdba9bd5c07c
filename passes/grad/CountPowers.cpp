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

// Returns true if the value is a sum over elements of several samples, and not
// a multiple of another such sum. A value that reads parameters has no state.
bool isSum(Value value, const SampleFlow &flow) {
  bool reads = flow.readsOthers(value);
  if (!reads && flow.of(value).kind != Samples::Sum)
    return false;
  Operation *op = value.getDefiningOp();
  while (isa_and_nonnull<nn::ReshapeOp, nn::CastOp>(op))
    op = op->getOperand(0).getDefiningOp();
  if (reads) {
    auto reduce = dyn_cast_or_null<nn::ReduceOp>(op);
    return reduce && reduce.getKind() == nn::ReduceKind::sum &&
           isSingle(reduce.getResult()) && !isSingle(reduce.getInput());
  }
  bool scales = isa_and_nonnull<nn::MulOp, nn::DivOp>(op);
  return !scales && !isa_and_nonnull<nn::BroadcastOp>(op);
}

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

// `value` is scale · (max(weight, atLeast) + plus).
std::optional<Count> Reader::count(Value value) {
  double atLeast = -std::numeric_limits<double>::infinity(), plus = 0;
  while (!isSum(value, flow)) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return std::nullopt;
    if (passesOn(op)) {
      value = op->getOperand(0);
      continue;
    }
    if (Value some = unguarded(op)) {
      value = some;
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
        return std::nullopt;
      atLeast = std::max(atLeast, *bound);
      value = select.getOnFalse();
      continue;
    }
    std::optional<Constant> with = constantOf(op);
    if (!with || isRounded(op))
      return std::nullopt;
    double number = with->number;
    if (isa<nn::MaximumOp>(op)) {
      atLeast = std::max(atLeast, number);
    } else if (isa<nn::AddOp>(op)) {
      atLeast -= number;
      plus += number;
    } else if (isa<nn::MulOp>(op) && number > 0) {
      atLeast /= number;
      plus /= number;
    } else if (isa<nn::DivOp>(op) && with->place == 1 && number > 0) {
      atLeast *= number;
      plus *= number;
    } else {
      return std::nullopt;
    }
    value = op->getOperand(1 - with->place);
  }
  if (plus < 0 || !isSingle(value))
    return std::nullopt;
  return Count{flow.firstOf(value), std::max(atLeast, 0.0), plus};
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
      one.count->plus != other.count->plus)
    return std::nullopt;
  return CountPower{one.count, one.exponent + other.exponent};
}

} // namespace fsdpc::passes

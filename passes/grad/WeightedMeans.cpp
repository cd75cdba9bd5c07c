// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The search goes from the loss back through linear ops to quotients by a
// count, however the division is spread. Each is a candidate: it is a mean over
// targets if the loss adds up over samples (SampleSums.h). Factors that undo
// each other count as constants, as where a model multiplies a mean by the
// number of targets.
#include "passes/grad/WeightedMeans.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/Linearity.h"
#include "compiler/dialects/nn/LossOps.h"
#include "passes/grad/CountGuards.h"
#include "passes/grad/LoneCounts.h"
#include "passes/grad/LossWeights.h"
#include "passes/grad/SampleSums.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;

namespace fsdpc::passes {
namespace {

// A term as its rest and factors that are powers of one count.
struct Term {
  OpOperand *rest = nullptr;
  CountPower power;
  SmallVector<CountFactor> factors;
};

class Search {
public:
  Search(Block &body, Value loss, const SampleFlow &flow)
      : body(body), loss(loss), flow(flow), needed(valuesOf(body, loss)) {}

  FoundMeans run();

private:
  void visit(Value value) { pending.push_back(value); }
  void visitAll();
  void visitNext(Value value);
  bool visitFactors(Operation *op);
  void visitTests(nn::SelectOp select);
  std::optional<Term> takeFactor(Operation *op) const;
  bool hasOtherUses(Value value) const;
  void takeGuard(OpOperand &test, bool ifAny, Value guarded);
  void findTests(WeightedMean &mean) const;
  bool isMeanOf(const WeightedMean &mean, Value guarded) const;
  SmallVector<OpOperand *> guardedUses(const CountFactor &factor) const;
  bool readsOthers(const WeightedMean &mean) const;

  Block &body;
  Value loss;
  const SampleFlow &flow;
  SmallVector<Value> pending; // what is to be visited, the next one last
  DenseSet<Value> needed, seen;
  Uses undone, finite; // factors that undo each other, tests of numbers
  FiniteTests finiteTests;
  struct Guard {
    OpOperand *test; // of whether there are targets
    Value guarded;
  };
  llvm::MapVector<Value, SmallVector<Guard>> guards; // by what they count
  SmallVector<WeightedMean> candidates;
};

// Returns true if the loss reads the value in several places. Looks no further
// than the second, since many ops may ask of a value with many uses.
bool Search::hasOtherUses(Value value) const {
  bool isRead = false;
  for (Operation *user : value.getUsers()) {
    if (!llvm::any_of(user->getResults(),
                      [&](Value result) { return needed.contains(result); }))
      continue;
    if (isRead)
      return true;
    isRead = true;
  }
  return false;
}

// Returns the operand that the op multiplies by a constant, or null.
OpOperand *scaledBy(Operation *op) {
  bool divides = isa<nn::DivOp>(op);
  if (divides || isa<nn::MulOp>(op)) {
    if (nn::matchSplat(op->getOperand(1)))
      return &op->getOpOperand(0);
    bool isLeft = !divides && nn::matchSplat(op->getOperand(0));
    return isLeft ? &op->getOpOperand(1) : nullptr;
  }
  bool isLinear = op->getNumOperands() == 1 &&
                  nn::linearityIn(op->getOpOperand(0)) == nn::Linearity::Term;
  return isLinear ? &op->getOpOperand(0) : nullptr;
}

// Takes a power of a count off a product or quotient: of two factors the one
// that combines samples, or that divides.
std::optional<Term> Search::takeFactor(Operation *op) const {
  bool divides = isa<nn::DivOp>(op);
  if (!divides && !isa<nn::MulOp>(op))
    return std::nullopt;
  for (unsigned place : {1u, 0u}) {
    OpOperand &factor = op->getOpOperand(place);
    if (!flow.readsInputs(factor.get()) || (divides && place == 0))
      continue;
    std::optional<CountPower> power = powerOf(factor.get(), flow);
    if (!power || !power->count)
      continue;
    // A sum of losses is not a count, though a mean may divide by one.
    if (!divides && flow.readsOthers(factor.get()) && power->exponent > 0)
      continue;
    Term term;
    term.rest = &op->getOpOperand(1 - place);
    term.power = *power;
    if (divides)
      term.power.exponent = -power->exponent;
    term.factors.push_back({&factor, power->count->weight});
    return term;
  }
  return std::nullopt;
}

// Factors may be spread over several products, with what is linear between.
// Returns false if the op has none.
bool Search::visitFactors(Operation *op) {
  std::optional<Term> term = takeFactor(op);
  if (!term)
    return false;
  while (term->power.exponent != -1 && term->power.exponent != 0) {
    Value rest = term->rest->get();
    Operation *inner = rest.getDefiningOp();
    if (!inner || hasOtherUses(rest))
      return true;
    if (std::optional<Term> more = takeFactor(inner)) {
      std::optional<CountPower> power = product(term->power, more->power);
      if (!power)
        return true;
      term->power = *power;
      term->factors.append(more->factors);
      term->rest = more->rest;
    } else if (OpOperand *input = scaledBy(inner)) {
      term->rest = input;
    } else {
      return true;
    }
  }
  if (term->power.exponent == -1) {
    candidates.push_back(
        {op->getResult(0), *term->power.count, std::move(term->factors), {}});
    return true;
  }
  for (const CountFactor &factor : term->factors)
    undone.insert(factor.use);
  visit(term->rest->get());
  return true;
}

// Depth first, without recursion: a deep model has chains of many thousand ops.
void Search::visitAll() {
  visit(loss);
  while (!pending.empty()) {
    Value next = pending.pop_back_val();
    size_t others = pending.size();
    visitNext(next);
    std::reverse(pending.begin() + others, pending.end());
  }
}

void Search::visitNext(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !seen.insert(value).second)
    return;
  if (isa<nn::CrossEntropyOp, nn::LinearCrossEntropyOp>(op)) {
    if (countsTargets(op, flow))
      candidates.push_back({value, {}, {}, {}});
    return;
  }
  if (visitFactors(op))
    return;
  if (auto select = dyn_cast<nn::SelectOp>(op))
    visitTests(select);
  if (isa<nn::MulOp>(op))
    for (unsigned place : {0u, 1u})
      takeGuard(op->getOpOperand(place), true, op->getOperand(1 - place));
  for (OpOperand &operand : op->getOpOperands())
    if (nn::linearityIn(operand) != nn::Linearity::None)
      visit(operand.get());
}

// A model may guard against a divisor of 0 by a test of the count, or of the
// mean.
void Search::visitTests(nn::SelectOp select) {
  OpOperand &test = select.getConditionMutable();
  for (bool ifAny : {true, false}) {
    Value some = ifAny ? select.getOnTrue() : select.getOnFalse();
    Value none = ifAny ? select.getOnFalse() : select.getOnTrue();
    if (!nn::matchSplat(none))
      continue;
    takeGuard(test, ifAny, some);
    if (finiteTests.holds(test.get())) {
      finite.insert_range(finiteTests.readsOf(test.get()));
      finite.insert(&test);
    }
  }
}

// Keeps `test` if it holds, or does not, where there are targets.
void Search::takeGuard(OpOperand &test, bool ifAny, Value guarded) {
  std::optional<Presence> presence = presenceOf(test.get(), flow);
  if (presence && presence->ifAny == ifAny)
    guards[presence->counted].push_back({&test, guarded});
}

// Finds the tests that guard the mean: those of its own targets.
void Search::findTests(WeightedMean &mean) const {
  auto add = [&](ArrayRef<Guard> of) {
    for (const Guard &guard : of)
      if (isMeanOf(mean, guard.guarded))
        mean.tests.push_back(guard.test);
  };
  if (mean.count.weight) {
    auto found = guards.find(countedBy(mean.count.weight, flow));
    if (found != guards.end())
      add(found->second);
    return;
  }
  Targets targets = targetsOf(mean.mean.getDefiningOp());
  for (const auto &[counted, of] : guards)
    if (ignoresAs(targets, counted, flow))
      add(of);
}

// Returns true if `guarded` is the mean, with constant factors and guards.
bool Search::isMeanOf(const WeightedMean &mean, Value guarded) const {
  Value value = guarded;
  while (value != mean.mean) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    auto select = dyn_cast<nn::SelectOp>(op);
    if (select && nn::matchSplat(select.getOnFalse()))
      value = select.getOnTrue();
    else if (select && nn::matchSplat(select.getOnTrue()))
      value = select.getOnFalse();
    else if (OpOperand *input = scaledBy(op))
      value = input->get();
    else if (isa<nn::MulOp>(op) && presenceOf(op->getOperand(0), flow))
      value = op->getOperand(1);
    else if (isa<nn::MulOp>(op) && presenceOf(op->getOperand(1), flow))
      value = op->getOperand(0);
    else
      return false;
  }
  return true;
}

// Returns the uses of the count that must not meet a count of 0. The gradient
// of a factor that reads parameters needs its divisors to be finite.
SmallVector<OpOperand *> Search::guardedUses(const CountFactor &factor) const {
  if (!flow.readsOthers(factor.use->get()))
    return {factor.use};
  SmallVector<OpOperand *> found, stack = {factor.use};
  Uses known;
  while (!stack.empty()) {
    OpOperand *use = stack.pop_back_val();
    if (!flow.readsInputs(use->get()) || !known.insert(use).second)
      continue;
    if (flow.firstOf(use->get()) == factor.weight)
      found.push_back(use);
    else if (Operation *op = use->get().getDefiningOp())
      for (OpOperand &operand : op->getOpOperands())
        stack.push_back(&operand);
  }
  return found;
}

bool Search::readsOthers(const WeightedMean &mean) const {
  if (mean.count.weight)
    return flow.readsOthers(mean.count.weight);
  Targets of = targetsOf(mean.mean.getDefiningOp());
  return flow.readsOthers(of.targets) ||
         (of.weights && flow.readsOthers(of.weights));
}

FoundMeans Search::run() {
  visitAll();
  FoundMeans found;
  DenseSet<Operation *> entropies;
  Uses explained = undone, constants = undone;
  constants.insert_range(finite);
  for (WeightedMean &mean : candidates) {
    findTests(mean);
    Operation *op = mean.mean.getDefiningOp();
    if (!addsUp(mean, loss, constants, flow))
      continue;
    if (mean.factors.empty())
      entropies.insert(op);
    if (readsOthers(mean)) {
      found.others.push_back(op);
      continue;
    }
    for (const CountFactor &factor : mean.factors) {
      explained.insert(factor.use);
      explained.insert_range(guardedUses(factor));
    }
    explained.insert_range(mean.tests);
    found.means.push_back(std::move(mean));
  }
  found.lone = findLoneCounts(body, needed, explained, entropies);
  return found;
}

} // namespace

FoundMeans findMeans(Block &body, fsdp::ReportLossOp report,
                     const SampleFlow &flow) {
  return Search(body, report.getLoss(), flow).run();
}

} // namespace fsdpc::passes

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The search goes from the loss to its terms, as long as the loss is linear in
// what it meets: a mean whose square or logarithm counts is no sum over
// targets. A factor that combines samples ends it too, unless it is undone by
// another one, as where a model multiplies a mean by the number of targets.
#include "passes/grad/WeightedMeans.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/Linearity.h"
#include "compiler/dialects/nn/LossOps.h"
#include "passes/grad/CountGuards.h"
#include "passes/grad/LoneCounts.h"
#include "passes/grad/LossWeights.h"
#include "passes/grad/SampleSums.h"

#include "llvm/Support/SaveAndRestore.h"

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
      : body(body), flow(flow), needed(valuesOf(body, loss)) {}

  FoundMeans run(OpOperand &loss);

private:
  void explain(ArrayRef<CountFactor> factors) {
    for (const CountFactor &factor : factors)
      explained.insert(factor.use);
  }
  void visit(OpOperand &use);
  void visitFactors(Operation *op);
  void visitRest(Operation *op);
  std::optional<int64_t> rowAxisBeside(Value factor) const;
  void visitBeside(Value factor, OpOperand &operand);
  std::optional<Term> takeFactor(Operation *op) const;
  void takeEntropy(Operation *op);
  void visitSelect(nn::SelectOp select);
  bool takeGuard(OpOperand &test, bool ifAny, Value guarded);
  bool counts(const WeightedMean &mean, Value counted) const;
  bool leadsTo(Value value, Value mean) const;
  SmallVector<OpOperand *> guardedUses(const CountFactor &factor) const;
  template <typename OpTy> bool readsOthers(Operation *op) const;
  bool hasOtherUses(Value value) const;
  bool isLinear(const WeightedMean &mean) const;

  Block &body;
  const SampleFlow &flow;
  bool inFactor = false; ///< the search is within a factor of inputs alone
  /// The axis of samples of a factor with elements of its own for each sample,
  /// beside which the search is; -1 if that axis is not known.
  std::optional<int64_t> rowAxis;
  DenseSet<Value> needed, seen;
  Uses walked, explained;
  struct Guard {
    OpOperand *test; ///< of whether there are targets
    Value counted, guarded;
  };
  SmallVector<Guard> guards;
  FoundMeans found;
};

// Returns true if the loss reads the value in several places.
bool Search::hasOtherUses(Value value) const {
  unsigned uses = 0;
  for (Operation *user : value.getUsers())
    uses += llvm::any_of(user->getResults(),
                         [&](Value result) { return needed.contains(result); });
  return uses > 1;
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
void Search::visitFactors(Operation *op) {
  std::optional<Term> term = takeFactor(op);
  if (!term)
    return visitRest(op);
  SmallVector<OpOperand *> path;
  while (term->power.exponent != -1 && term->power.exponent != 0) {
    path.push_back(term->rest);
    Value rest = term->rest->get();
    Operation *inner = rest.getDefiningOp();
    if (!inner || hasOtherUses(rest))
      return;
    if (std::optional<Term> more = takeFactor(inner)) {
      std::optional<CountPower> power = product(term->power, more->power);
      if (!power)
        return;
      term->power = *power;
      term->factors.append(more->factors);
      term->rest = more->rest;
    } else if (OpOperand *input = scaledBy(inner)) {
      term->rest = input;
    } else {
      return;
    }
  }
  if (term->power.exponent == 0) {
    explain(term->factors);
    walked.insert_range(path);
    return visit(*term->rest);
  }
  // The mean of a factor that is itself a sum over samples is a number of the
  // microbatch, such as a baseline.
  Value rest = term->rest->get();
  if ((inFactor && flow.combines(rest)) || !addsUp(rest, flow))
    return;
  if (flow.readsOthers(term->power.count->weight))
    found.others.push_back(op);
  else
    found.means.push_back(
        {op->getResult(0), *term->power.count, std::move(term->factors), {}});
}

// Continues through a product or quotient by what combines no samples. A mask
// may have been divided, and not its product with the losses.
void Search::visitRest(Operation *op) {
  OpOperand &left = op->getOpOperand(0), &right = op->getOpOperand(1);
  if (isa<nn::DivOp>(op)) {
    if (!flow.readsOthers(right.get()) ? !flow.combines(right.get())
                                       : !flow.readsInputs(right.get()))
      visitBeside(right.get(), left);
    return;
  }
  for (auto [factor, other] :
       {std::pair(&left, &right), std::pair(&right, &left)}) {
    if (!flow.readsInputs(factor->get()))
      return visit(*other);
    if (flow.readsOthers(factor->get()))
      continue;
    if (!flow.combines(factor->get()))
      return visitBeside(factor->get(), *other);
    if (takeGuard(*factor, true, other->get()))
      return visit(*other);
    llvm::SaveAndRestore enter(inFactor, true);
    return visit(*factor);
  }
}

// Returns the search's axis of samples beside a factor too.
std::optional<int64_t> Search::rowAxisBeside(Value factor) const {
  SampleState state = flow.of(factor);
  return state.kind == Samples::Rows ? state.axis : rowAxis;
}

// Visits an operand that is multiplied by a factor which combines no samples.
void Search::visitBeside(Value factor, OpOperand &operand) {
  llvm::SaveAndRestore beside(rowAxis, rowAxisBeside(factor));
  visit(operand);
}

template <typename OpTy> bool Search::readsOthers(Operation *op) const {
  auto entropy = dyn_cast<OpTy>(op);
  return entropy &&
         (flow.readsOthers(entropy.getTargets()) ||
          (entropy.getWeights() && flow.readsOthers(entropy.getWeights())));
}

void Search::takeEntropy(Operation *op) {
  if (readsOthers<nn::CrossEntropyOp>(op) ||
      readsOthers<nn::LinearCrossEntropyOp>(op))
    found.others.push_back(op);
  else if (countsTargets(op, flow))
    found.means.push_back({op->getResult(0), {}, {}, {}});
}

void Search::visit(OpOperand &use) {
  walked.insert(&use);
  Value value = use.get();
  Operation *op = value.getDefiningOp();
  if (!op || !seen.insert(value).second)
    return;
  if (isa<nn::CrossEntropyOp, nn::LinearCrossEntropyOp>(op))
    return takeEntropy(op);
  if (isa<nn::MulOp, nn::DivOp>(op))
    return visitFactors(op);
  if (auto select = dyn_cast<nn::SelectOp>(op))
    return visitSelect(select);
  // A mean of all samples, multiplied by a factor of each, is not a mean.
  if (rowAxis && repeatsSamples(op, *rowAxis))
    return;
  // Inputs may choose of one microbatch's mean where another has a factor.
  if (llvm::any_of(op->getOpOperands(), [&](OpOperand &operand) {
        return nn::linearityIn(operand) == nn::Linearity::None &&
               flow.readsInputs(operand.get());
      }))
    return;
  if (op->getNumOperands() == 2 &&
      llvm::all_of(op->getOpOperands(), [](OpOperand &operand) {
        return nn::linearityIn(operand) == nn::Linearity::Factor;
      }))
    return visitRest(op);
  for (OpOperand &operand : op->getOpOperands())
    if (nn::linearityIn(operand) == nn::Linearity::Term)
      visit(operand);
}

// A model may guard against a divisor of 0 by a test of the count, or of the
// mean.
void Search::visitSelect(nn::SelectOp select) {
  OpOperand &test = select.getConditionMutable();
  bool hasNumber = false, isGuard = false;
  for (bool ifAny : {true, false}) {
    Value some = ifAny ? select.getOnTrue() : select.getOnFalse();
    Value none = ifAny ? select.getOnFalse() : select.getOnTrue();
    if (!nn::matchSplat(none))
      continue;
    hasNumber = true;
    isGuard |= takeGuard(test, ifAny, some);
  }
  Uses reads;
  if (hasNumber && testsFinite(test.get(), reads)) {
    walked.insert_range(reads);
    walked.insert(&test);
  } else if (!isGuard && flow.readsInputs(test.get()) &&
             (flow.readsOthers(test.get()) || flow.combines(test.get()))) {
    return; // microbatches choose otherwise than all samples together
  }
  llvm::SaveAndRestore beside(rowAxis, rowAxisBeside(test.get()));
  visit(select.getOnTrueMutable());
  visit(select.getOnFalseMutable());
}

// Returns true if `test` holds, or does not, where there are targets.
bool Search::takeGuard(OpOperand &test, bool ifAny, Value guarded) {
  std::optional<Presence> presence = presenceOf(test.get(), flow);
  if (!presence || presence->ifAny != ifAny)
    return false;
  guards.push_back({&test, presence->counted, guarded});
  return true;
}

// Returns true if `value` is the mean, with constant factors and guards.
bool Search::leadsTo(Value value, Value mean) const {
  while (value != mean) {
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

bool Search::counts(const WeightedMean &mean, Value counted) const {
  if (mean.count.weight)
    return countedBy(mean.count.weight, flow) == counted;
  return ignoresAs(targetsOf(mean.mean.getDefiningOp()), counted, flow);
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

// Returns true if whatever the loss computes from the mean is linear in it.
bool Search::isLinear(const WeightedMean &mean) const {
  DenseSet<Value> reached = {mean.mean};
  SmallVector<Value> stack = {mean.mean};
  while (!stack.empty())
    for (OpOperand &use : stack.pop_back_val().getUses()) {
      auto results = llvm::make_filter_range(
          use.getOwner()->getResults(),
          [&](Value result) { return needed.contains(result); });
      if (!results.empty() && !walked.contains(&use))
        return false;
      for (Value result : results)
        if (reached.insert(result).second)
          stack.push_back(result);
    }
  return true;
}

FoundMeans Search::run(OpOperand &loss) {
  visit(loss);
  llvm::erase_if(found.means,
                 [&](const WeightedMean &mean) { return !isLinear(mean); });
  DenseSet<Operation *> entropies(found.others.begin(), found.others.end());
  for (WeightedMean &mean : found.means) {
    explain(mean.factors);
    for (const CountFactor &factor : mean.factors)
      explained.insert_range(guardedUses(factor));
    for (const Guard &guard : guards)
      if (counts(mean, guard.counted) && leadsTo(guard.guarded, mean.mean))
        mean.tests.push_back(guard.test);
    explained.insert_range(mean.tests);
    if (mean.factors.empty())
      entropies.insert(mean.mean.getDefiningOp());
  }
  found.lone = findLoneCounts(body, needed, explained, entropies);
  return std::move(found);
}

} // namespace

FoundMeans findMeans(Block &body, fsdp::ReportLossOp report,
                     const SampleFlow &flow) {
  return Search(body, report.getLoss(), flow).run(report.getLossMutable());
}

} // namespace fsdpc::passes

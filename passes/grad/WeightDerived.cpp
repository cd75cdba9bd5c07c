// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes the origin of each value of @microbatch in one forward scan.
#include "passes/grad/WeightDerived.h"

#include "compiler/dialects/fsdp/Recomputed.h"

using namespace mlir;

namespace fsdpc::passes {

Origins::Origins(Block &body) {
  for (BlockArgument argument : body.getArguments())
    origins[argument] = Origin::Data;
  SymbolTableCollection symbols;
  for (Operation &op : body) {
    auto load = dyn_cast<fsdp::LoadOp>(op);
    bool ofParameter =
        load && symbols.lookupNearestSymbolFrom<fsdp::ParameterOp>(
                    load, load.getSymbolAttr());
    if (ofParameter || isa<fsdp::FlatOp>(op))
      weightSources.insert(&op);
    // An op with effects counts as data, the safe answer: nothing clones it.
    Origin origin = isWeightSource(&op) ? Origin::Weight : Origin::Constant;
    if (op.hasTrait<fsdp::FixedPerMicrobatch>() || !isMemoryEffectFree(&op))
      origin = Origin::Data;
    for (Value operand : op.getOperands())
      origin = std::max(origin, of(operand));
    for (Value result : op.getResults())
      origins[result] = origin;
  }
}

// Clones a forward op in front of the backward op `user`, into the unit of
// `user`, and maps the results to those of the clone. The clone keeps the
// attributes of its source except for direction and unit, which are those of
// its reader, and the mark that asked for it.
static void cloneIntoBackward(Operation *source, Operation *user,
                              IRMapping &operands, IRMapping &clones) {
  OpBuilder builder(user);
  Operation *clone = builder.clone(*source, operands);
  clone->setAttr(fsdp::FSDPDialect::kBackwardAttr, builder.getUnitAttr());
  clone->removeAttr(fsdp::kRecomputeAttr);
  if (Attribute unit = unitOf(user))
    clone->setAttr(fsdp::FSDPDialect::kUnitAttr, unit);
  clones.map(source->getResults(), clone->getResults());
}

// Depth first with an explicit stack; an op is cloned when all of its missing
// operands have been.
Value cloneChain(Value value, Operation *user,
                 llvm::function_ref<bool(Value)> isCloned, IRMapping &clones,
                 Pass::Statistic &count) {
  auto isMissing = [&](Value each) {
    return isCloned(each) && !clones.contains(each);
  };
  // An op whose operands are being cloned, from `next` on.
  struct Pending {
    Operation *op;
    unsigned next;
  };
  SmallVector<Pending> stack;
  if (isMissing(value))
    stack.push_back({value.getDefiningOp(), 0});
  while (!stack.empty()) {
    auto [op, next] = stack.back();
    if (next < op->getNumOperands()) {
      ++stack.back().next;
      if (Value operand = op->getOperand(next); isMissing(operand))
        stack.push_back({operand.getDefiningOp(), 0});
      continue;
    }
    // Operands that are not cloned stay the values of the forward.
    IRMapping operands;
    for (Value operand : op->getOperands())
      if (isCloned(operand))
        operands.map(operand, clones.lookup(operand));
    cloneIntoBackward(op, user, operands, clones);
    ++count;
    stack.pop_back();
  }
  return isCloned(value) ? clones.lookup(value) : value;
}

FunctionOpInterface lookupMicrobatch(ModuleOp module) {
  auto function =
      module.lookupSymbol<FunctionOpInterface>(fsdp::FSDPDialect::kMicrobatch);
  if (!function || function.isExternal()) {
    module.emitError("expected a function '@")
        << fsdp::FSDPDialect::kMicrobatch << "' with a body";
    return nullptr;
  }
  return function;
}

} // namespace fsdpc::passes

// Computes the origin of each value of @microbatch in one forward scan.
#include "passes/grad/WeightDerived.h"

using namespace mlir;

namespace fsdpc::passes {

bool isWeightSource(Operation *op) {
  if (isa<fsdp::FlatOp>(op))
    return true;
  auto load = dyn_cast<fsdp::LoadOp>(op);
  return load &&
         isa_and_nonnull<fsdp::ParameterOp>(
             SymbolTable::lookupNearestSymbolFrom(load, load.getSymbolAttr()));
}

Origins::Origins(Block &body) {
  for (BlockArgument argument : body.getArguments())
    origins[argument] = Origin::Data;
  for (Operation &op : body) {
    Origin origin = isWeightSource(&op) ? Origin::Weight : Origin::Constant;
    if (isa<fsdp::RandomOp>(op) || !isMemoryEffectFree(&op))
      origin = Origin::Data;
    for (Value operand : op.getOperands())
      origin = std::max(origin, of(operand));
    for (Value result : op.getResults())
      origins[result] = origin;
  }
}

void cloneIntoBackward(Operation *source, Operation *user, IRMapping &operands,
                       IRMapping &clones) {
  OpBuilder builder(user);
  Operation *clone = builder.clone(*source, operands);
  clone->setAttr(fsdp::FSDPDialect::kBackwardAttr, builder.getUnitAttr());
  if (Attribute unit = unitOf(user))
    clone->setAttr(fsdp::FSDPDialect::kUnitAttr, unit);
  clones.map(source->getResults(), clone->getResults());
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes each unit to the cuts of compiler/schedule/recompute_cut.h: its ops
// with their times, and the memory that they write and read. Equal blocks get
// equal options, so their kernels stay equal where they take the same one.
#include "passes/grad/RecomputeOptions.h"

#include "passes/grad/RecomputeChooser.h"

#include "compiler/dialects/fsdp/Machine.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/Interfaces.h"
#include "compiler/options/Options.h"
#include "compiler/schedule/cost_model.h"
#include "compiler/schedule/recompute_cut.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// A unit as a problem of cuts, with the ops that it is about.
class UnitGraph {
public:
  UnitGraph(const RecomputeChooser &cheap, const schedule::Machine &machine,
            ElementType type)
      : cheap(cheap), machine(machine), type(type) {}

  void addOp(Operation *op, int index);
  void readOperands(Operation *op);
  UnitOptions options() const;

private:
  schedule::KeepableValue &valueOf(Value storage);

  const RecomputeChooser &cheap;
  const schedule::Machine &machine;
  ElementType type;
  schedule::RepeatableUnit unit;
  SmallVector<int> indices; // in the body, by op
  DenseMap<Operation *, int> numbers;
  DenseMap<Value, int> values;
};

schedule::KeepableValue &UnitGraph::valueOf(Value storage) {
  auto [known, isNew] = values.try_emplace(storage, int(unit.values.size()));
  if (!isNew)
    return unit.values[known->second];
  schedule::KeepableValue &value = unit.values.emplace_back();
  value.bytes = denseBytes(storage);
  value.isRead = cheap.isKept(storage);
  if (auto number = numbers.find(storage.getDefiningOp());
      number != numbers.end())
    value.producer = number->second;
  return value;
}

// In program order, so that an op's producers have numbers before it.
void UnitGraph::addOp(Operation *op, int index) {
  numbers[op] = int(unit.ops.size());
  indices.push_back(index);
  bool always = cheap.choice().contains(op);
  unit.ops.push_back({always ? 0 : repeatUs(op, machine, type), always});
  for (Value result : op->getResults())
    valueOf(result);
  readOperands(op);
}

void UnitGraph::readOperands(Operation *op) {
  for (Value operand : op->getOperands()) {
    Value storage = storageOf(operand);
    Operation *source = storage.getDefiningOp();
    // A value that is fixed for a microbatch is in memory in any case.
    if (cheap.isKeepable(storage) &&
        !source->hasTrait<fsdp::FixedPerMicrobatch>())
      valueOf(storage).readers.push_back(numbers[op]);
  }
}

UnitOptions UnitGraph::options() const {
  UnitOptions options;
  for (auto [number, op] : llvm::enumerate(unit.ops))
    if (!op.always)
      options.whole.push_back(indices[number]);
  std::vector<schedule::RepeatedOps> choices = schedule::repeatingOptions(unit);
  for (const schedule::RepeatedOps &choice : llvm::drop_begin(choices)) {
    options.trades.push_back(
        {choices.front().keptBytes - choice.keptBytes, choice.costUs});
    OpIndices &ops = options.ops.emplace_back();
    for (int number : choice.ops)
      ops.push_back(indices[number]);
  }
  return options;
}

} // namespace

bool fsdpc::passes::isRepeatable(const RecomputeChooser &chooser,
                                 Operation *op) {
  // Views and broadcasts are repeated where they are read, and what a product
  // computes with the product.
  return !op->hasTrait<nn::ReadAsOperand>() && !chooser.productOf(op) &&
         chooser.isInner(op);
}

double fsdpc::passes::repeatUs(Operation *op, const schedule::Machine &machine,
                               ElementType type) {
  int64_t bytes = 0;
  for (Value value : op->getOperands())
    if (isa<RankedTensorType>(value.getType()))
      bytes += denseBytes(value);
  for (Value value : op->getResults())
    bytes += denseBytes(value);
  auto call = dyn_cast<nn::LibraryCallOpInterface>(op);
  StringRef opClass = call ? op->getName().stripDialect() : "launch";
  double flops =
      call ? double(call.getFlops()) * fsdp::tilingFactor(op, machine) : 0;
  return schedule::opUs(machine, opClass, flops, double(bytes), type);
}

FailureOr<std::vector<UnitOptions>>
fsdpc::passes::recomputeOptions(ModuleOp module) {
  FunctionOpInterface function = lookupMicrobatch(module);
  FailureOr<DenseSet<Attribute>> units = unitsInScope(module);
  if (!function || failed(units))
    return failure();
  Block &body = function.getFunctionBody().front();
  RecomputeChooser cheap(body);
  cheap.chooseCheap();
  schedule::Machine machine = fsdp::machineOf(module);
  ElementType type = fsdp::CompileOptions::of(module).paramType;
  llvm::MapVector<Attribute, UnitGraph> regions;
  for (auto unit : module.getOps<fsdp::UnitOp>())
    if (Attribute name = FlatSymbolRefAttr::get(unit); units->contains(name))
      regions.try_emplace(name, cheap, machine, type);
  for (auto [index, op] : llvm::enumerate(body)) {
    auto region = regions.find(unitOf(&op));
    if (region != regions.end() &&
        (isRepeatable(cheap, &op) || cheap.choice().contains(&op)))
      region->second.addOp(&op, int(index));
  }
  std::vector<UnitOptions> options;
  for (const auto &[name, region] : regions)
    options.push_back(region.options());
  return options;
}

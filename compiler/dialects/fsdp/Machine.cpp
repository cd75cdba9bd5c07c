// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns the options of a compile into the machine of the cost model.
#include "compiler/dialects/fsdp/Machine.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/Products.h"
#include "compiler/options/Options.h"
#include "compiler/schedule/cost_model.h"
#include "compiler/schedule/rounding.h"

using namespace mlir;

// Without --machine there are nodes only if a flag says so.
fsdpc::schedule::Machine fsdpc::fsdp::machineOf(ModuleOp module) {
  CompileOptions options = CompileOptions::of(module);
  schedule::Machine machine;
  if (!options.machine.name.empty()) {
    // The text was checked when the option was read.
    machine = *schedule::machineFromJson(options.machine.text);
  } else {
    // The list of GPUs is ascending, so its last entry is the newest.
    machine = schedule::defaultMachine(
        options.isCuda() ? nameOf(options.gpus.back()) : "host");
    machine.ranksPerNode = 0;
  }
  machine.isGpu = options.isCuda();
  // A GPU is one core of the model.
  if (!options.isCuda())
    machine.cores = options.planThreads;
  machine.ranks = options.planRanks;
  if (options.planRanksPerNode > 0)
    machine.ranksPerNode = int(options.planRanksPerNode);
  // A link of another rate reaches the same share of it.
  if (double given = options.planCrossNodeGBs; given > 0) {
    machine.nodes.gatherGBs = machine.nodes.gatherGBs.of(given);
    machine.nodes.reduceGBs = machine.nodes.reduceGBs.of(given);
  }
  return machine;
}

// Returns the type that the op computes in: that of its first operand of
// floats, or `otherwise`.
static fsdpc::ElementType typeOf(Operation *op, fsdpc::ElementType otherwise) {
  using fsdpc::ElementType;
  for (Value operand : op->getOperands()) {
    Type type = cast<RankedTensorType>(operand.getType()).getElementType();
    if (type.isBF16())
      return ElementType::bf16;
    if (type.isF16())
      return ElementType::f16;
    if (isa<FloatType>(type))
      return ElementType::f32;
  }
  return otherwise;
}

double fsdpc::fsdp::tilingFactor(Operation *op,
                                 const schedule::Machine &machine) {
  if (!nn::isProduct(op))
    return 1;
  auto [count, rows, columns] = nn::resultsOf(op);
  return schedule::tilingFactor(machine, count, rows, columns);
}

double fsdpc::fsdp::opUs(Operation *op, const schedule::Machine &machine,
                         ElementType otherwise) {
  auto count = [&](StringRef name) {
    return double(op->getAttrOfType<IntegerAttr>(name).getInt());
  };
  return schedule::roundedUs(
      schedule::opUs(machine, op->getName().stripDialect(),
                     tilingFactor(op, machine) * count(FSDPDialect::kFlopsAttr),
                     count(FSDPDialect::kBytesAttr), typeOf(op, otherwise)));
}

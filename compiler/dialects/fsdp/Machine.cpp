// Turns the options of a compile into the machine of the cost model.
#include "compiler/dialects/fsdp/Machine.h"

#include "compiler/dialects/fsdp/Options.h"

using namespace mlir;

// Without --machine, what the flags say of nodes is all that is known of them.
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
    machine.nodes = machine.node;
  }
  // A GPU is one core of the model.
  if (!options.isCuda())
    machine.cores = options.planThreads;
  machine.ranks = options.planRanks;
  if (options.planRanksPerNode > 0)
    machine.ranksPerNode = int(options.planRanksPerNode);
  if (options.planCrossNodeGBs > 0)
    machine.nodes.gatherGBs = machine.nodes.reduceGBs =
        options.planCrossNodeGBs;
  return machine;
}

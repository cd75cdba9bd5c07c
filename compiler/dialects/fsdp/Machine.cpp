// Turns the options of a compile into the machine of the cost model.
#include "compiler/dialects/fsdp/Machine.h"

#include "compiler/dialects/fsdp/Options.h"
#include "compiler/schedule/gpu_machine.h"

using namespace mlir;

fsdpc::schedule::Machine fsdpc::fsdp::machineOf(ModuleOp module) {
  CompileOptions options = CompileOptions::of(module);
  schedule::Machine machine;
  // The list is ascending, so its last entry is the newest.
  if (options.isCuda())
    machine = schedule::gpuMachine(nameOf(options.gpus.back()));
  else
    machine.cores = options.planThreads;
  machine.ranks = options.planRanks;
  machine.ranksPerNode = int(options.planRanksPerNode);
  machine.crossNodeGBs = options.planCrossNodeGBs;
  return machine;
}

// As plannedGroup of the memory plan: all ranks where the group does not divide
// them.
fsdpc::schedule::Machine fsdpc::fsdp::groupMachineOf(ModuleOp module) {
  CompileOptions options = CompileOptions::of(module);
  schedule::Machine machine = machineOf(module);
  if (options.reshardTo > 0 && machine.ranks % options.reshardTo == 0)
    machine.ranks = int(options.reshardTo);
  return machine;
}

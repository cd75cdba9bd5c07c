// The machine of a rank of this compile, for the cost model.
#pragma once

#include "compiler/schedule/cost_model.h"

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::fsdp {

/// Returns the machine that the options plan for: --plan-threads cores, or for
/// CUDA targets one GPU of the newest of --gpu-arch; and --plan-ranks ranks, on
/// nodes of --plan-ranks-per-node.
schedule::Machine machineOf(mlir::ModuleOp module);

/// Returns the same with the ranks of one group of --reshard-to, for gathers
/// that do not leave it.
schedule::Machine groupMachineOf(mlir::ModuleOp module);

} // namespace fsdpc::fsdp

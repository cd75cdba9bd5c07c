// What a rank of this compile runs on, as the cost model sees it.
#pragma once

#include "compiler/schedule/cost_model.h"

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::fsdp {

/// --plan-threads cores, or for CUDA targets one GPU of the newest of
/// --gpu-arch; --plan-ranks ranks.
schedule::Machine machineOf(mlir::ModuleOp module);

} // namespace fsdpc::fsdp

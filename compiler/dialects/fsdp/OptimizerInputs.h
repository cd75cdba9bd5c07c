// The rules of what optimizers take beside the gradient: sums, factors and
// updates.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

namespace fsdpc::fsdp {

/// Checks that the sums, factors and updates of an optimizer are those of its
/// layout, over all ranks and scaled by `clip`. Emits an error that begins with
/// the name of the rule.
llvm::LogicalResult verifyInputs(OptimizerOp optimizer, ClipScaleOp clip);

/// Checks that the optimizers take all that @update computes for them, once. An
/// edit may have left the rest behind.
llvm::LogicalResult verifyUsedInputs(mlir::Block &update, ClipScaleOp clip);

} // namespace fsdpc::fsdp

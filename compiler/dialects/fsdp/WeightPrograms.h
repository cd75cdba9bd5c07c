// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Translates the regions of fsdp.loss_weight to the programs of the manifest,
// which the runtime interprets on the samples of each microbatch.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "runtime/abi/manifest.h"

#include <optional>

namespace fsdpc::fsdp {

/// Returns the step that computes what `op` does, without its operands, or
/// nullopt if programs have no such op.
std::optional<WeightStep> weightStepOf(mlir::Operation *op);

/// Returns a verified weight as the manifest describes it.
LossWeight lossWeightOf(LossWeightOp op);

} // namespace fsdpc::fsdp

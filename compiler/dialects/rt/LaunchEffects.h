// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The effects of a launch, for callers that know its kernel. LaunchOp's own
// getEffects walks all symbols to find it.
#pragma once

#include "compiler/dialects/rt/RTDialect.h"

namespace fsdpc::rt {

/// Adds the effects of a launch whose kernel has so many operands. Buffers are
/// the operands, which it reads, then the results, which it writes.
void addLaunchEffects(
    LaunchOp launch, unsigned operands,
    llvm::SmallVectorImpl<mlir::MemoryEffects::EffectInstance> &effects);

} // namespace fsdpc::rt

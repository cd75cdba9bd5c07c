// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows the samples of a microbatch through one op.
#pragma once

#include "passes/grad/SampleFlow.h"

namespace fsdpc::passes {

/// Returns the state of the results of `op`, which has operands of the given
/// states. Models mix samples on purpose, as by batch norm: where `ofModel`,
/// what library calls, composites and lookups return counts as rows again.
SampleState transferSamples(mlir::Operation &op,
                            llvm::ArrayRef<SampleState> operands, bool ofModel);

} // namespace fsdpc::passes

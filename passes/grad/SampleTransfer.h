// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows the samples of a microbatch through one op that reads inputs and
// constants alone.
#pragma once

#include "passes/grad/SampleFlow.h"

namespace fsdpc::passes {

/// Returns the state of the results of `op`, which has operands of the given
/// states.
SampleState transferSamples(mlir::Operation &op,
                            llvm::ArrayRef<SampleState> operands);

} // namespace fsdpc::passes

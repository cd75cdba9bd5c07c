// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Inserts the gathers of parameters.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/options/Options.h"

namespace fsdpc::passes {

/// Replaces every fsdp.flat of the block: by fsdp.replicated where every rank
/// keeps the parameters, else by a gather in each run of weight-reading ops of
/// one unit, with a free behind the last of its readers. With `reshard`,
/// gathers of a layout after the first one read what that kept (--reshard-to).
/// Returns the number of gathers.
int64_t gatherParameters(mlir::ModuleOp module,
                         const fsdp::CompileOptions &options, mlir::Block &body,
                         bool reshard);

} // namespace fsdpc::passes

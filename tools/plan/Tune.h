// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc tune`: the settings of the fastest step that fits.
#pragma once

#include "tools/fsdpc/CommandLine.h"
#include "tools/plan/Planner.h"

namespace fsdpc::plan {

/// Plans the model with many settings and prints the front of step and memory,
/// and why the fastest plan is fastest. `imported` is of the phase `import`,
/// with the options of the line.
llvm::LogicalResult tune(const driver::CommandLine &line,
                         mlir::OwningOpRef<mlir::ModuleOp> imported,
                         const Importer &importAgain);

} // namespace fsdpc::plan

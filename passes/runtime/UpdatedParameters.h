// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gathers of parameters that @update has changed, at the beginning of the
// functions that read them. A section of a CUDA program is one graph, which
// begins and ends on the compute stream. A gather at the end of @update would
// therefore be exposed; in the next section it runs beside the forward.
#pragma once

#include "passes/runtime/Pointers.h"

namespace fsdpc::passes {

/// Returns the layouts that @update gathers, in its order; none if it is
/// missing.
mlir::SmallVector<mlir::FlatSymbolRefAttr>
layoutsGatheredByUpdate(mlir::ModuleOp module);

/// Inserts rt.all_gather ops of these layouts at the beginning of a converted
/// forward, one per unit in the order in which compute first reads them.
/// Compute waits for a unit's gather in front of that read. Fails if an op does
/// not state what it reads.
mlir::LogicalResult
gatherUpdated(mlir::func::FuncOp forward,
              mlir::ArrayRef<mlir::FlatSymbolRefAttr> layouts,
              mlir::SymbolTable &symbols, int64_t gatherPadding);

} // namespace fsdpc::passes

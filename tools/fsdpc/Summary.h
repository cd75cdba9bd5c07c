// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The summary that a compile prints when it is done.
#pragma once

#include "frontends/onnx/Import.h"
#include "runtime/abi/manifest.h"

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::driver {

/// Both print to stdout: the first after the import, the second from the final
/// module.
void printImportSummary(const frontend::ImportSummary &summary);
void printModelSummary(mlir::ModuleOp module);
/// Prints the step that the cost model expects at --plan-ranks, of a module
/// whose schedule is verified.
void printPrediction(mlir::ModuleOp module);

/// Prints the parameters of each unit.
void printUnits(mlir::ModuleOp module);
/// Prints the memory of a rank by kind, for 1, 2, 4, 8 and 64 ranks at
/// --plan-threads. The table is of the plan, which programs keep to; stacks of
/// kernels are in it only once they are compiled.
void printMemoryTable(const Manifest &manifest);
/// Returns the peak of a rank in bytes, at --plan-threads.
int64_t plannedPeak(const Manifest &manifest, int ranks);

} // namespace fsdpc::driver

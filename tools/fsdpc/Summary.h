// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The summary that a compile prints when it is done.
#pragma once

#include "frontends/onnx/Import.h"
#include "runtime/abi/manifest.h"

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::driver {

/// Returns bytes in MiB.
inline double mebibytes(int64_t bytes) { return double(bytes) / (1 << 20); }

/// All functions below print to stdout. This one prints what the import found.
void printImportSummary(const frontend::ImportSummary &summary);
/// Prints what the phases have made of the model: what decides memory, speed
/// and what is learnt.
void printModelSummary(mlir::ModuleOp module);
/// Prints what follows from that, for --verbose.
void printDetails(mlir::ModuleOp module);
/// Prints the planned peak, if there is a manifest, and the predicted step by
/// number of ranks, of a module whose schedule is verified. The next two
/// functions print the parts of both.
void printTotals(mlir::ModuleOp module, const Manifest *manifest);
/// Prints the step that the cost model expects at --plan-ranks.
void printPrediction(mlir::ModuleOp module);
/// Prints the memory of a rank by kind, for 1, 2, 4, 8 and 64 ranks at
/// --plan-threads. The table is of the plan, which programs keep to; stacks of
/// kernels are in it only once they are compiled.
void printMemoryTable(const Manifest &manifest);
/// Prints the parameters of each unit.
void printUnits(mlir::ModuleOp module);
/// Returns the peak of a rank in bytes, at --plan-threads.
int64_t plannedPeak(const Manifest &manifest, int ranks);

} // namespace fsdpc::driver

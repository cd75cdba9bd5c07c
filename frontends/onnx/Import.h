// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface of the ONNX frontend: reads a model file and returns a module
// of phase `import`.
#pragma once

#include "compiler/options/Options.h"

#include "frontends/onnx/Budgets.h"
#include "runtime/support/input_file.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <set>
#include <string>

namespace fsdpc::frontend {

/// Counts that the driver prints after an import.
struct ImportSummary {
  int64_t nodes = 0;  ///< after functions and branches are inlined
  int64_t folded = 0; ///< those among them that became constants
  int64_t parameters = 0, parameterElements = 0, trainableElements = 0;
  int64_t aliases = 0, buffers = 0, inputs = 0, dropouts = 0, batchNorms = 0;
  int64_t storedBytes = 0; ///< of constants that ranks share
  int64_t draws = 0;       ///< nn.uniform
  int64_t detached = 0;    ///< values that gradients do not pass
  /// The optimizer that the model carries, or why another one is used; empty
  /// for a model without.
  std::string optimizer;
  Budgets budgets;
  /// The model and its external data, which no output may replace.
  std::set<FileIdentity> files;
};

/// Reads the model at `path`. Errors are diagnostics of `context`: a single
/// error, with a note per node if several nodes are refused. Initial values of
/// parameters stay in their files; the module records file, offset, length and
/// hash. A model that says itself how it is trained sets the options that were
/// not given: the loss, the optimizer, and its rate.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importOnnx(llvm::StringRef path, fsdp::CompileOptions &options,
           mlir::MLIRContext *context, ImportSummary *summary = nullptr);

} // namespace fsdpc::frontend

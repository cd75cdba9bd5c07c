// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The output of fsdpc while it works: each diagnostic as one line with the ONNX
// node and its module, and a progress line on a terminal.
#pragma once

#include "mlir/IR/Diagnostics.h"

namespace fsdpc::driver {

/// Prints "error: message (node 'n')", with notes below. Registered with the
/// context for its lifetime; `quiet` hides remarks.
class DiagnosticPrinter : public mlir::ScopedDiagnosticHandler {
public:
  DiagnosticPrinter(mlir::MLIRContext *context, bool quiet);
};

/// A line on the terminal that names the current pass; silent if `quiet` or if
/// stderr is not a terminal.
class Progress {
public:
  Progress(bool quiet, unsigned steps);
  ~Progress() { clear(); }
  /// Shows the name of the next step.
  void step(llvm::StringRef name);
  /// Clears the line. Called before anything else is printed; there is one
  /// terminal, so whoever prints need not know the object.
  static void clear();

private:
  bool shown;
  unsigned steps, count = 0;
};

} // namespace fsdpc::driver

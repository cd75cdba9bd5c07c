// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The last step of a compile: from the final module to an executable file.
#pragma once

#include "compiler/codegen/KernelCompiler.h"
#include "compiler/codegen/nvvm/Toolkit.h"
#include "runtime/abi/manifest.h"

#include "mlir/IR/BuiltinOps.h"

#include <functional>

namespace fsdpc::codegen {

struct ExecutableOptions {
  /// The file of the program. It is replaced only when the new one is complete.
  std::string path;
  std::string commandLine; ///< the command line of fsdpc, for --info
  /// Keeps the absolute paths of the model's files. They are relative to the
  /// program's folder otherwise, so that its bytes depend on no folder.
  bool absolutePaths = false;
  std::string dumpFolder;   ///< keeps PTX and cubins here, unless empty
  std::string kernelReport; ///< file for the figures of ptxas, or empty
  CudaToolkit toolkit;      ///< used by --target=cuda only
  /// The cache of kernels, and what is called as parts begin.
  KernelHelp kernels;
  /// Decides, before the program is written, if it is wanted; may be null. It
  /// emits its own errors.
  std::function<llvm::LogicalResult(const Manifest &)> accept;
};

/// Emits an error at `loc` if no program can be written to `path`. The driver
/// calls it before it compiles, so that a long compile does not end in a
/// mistyped folder.
mlir::LogicalResult checkOutput(mlir::Location loc, llvm::StringRef path);

/// Compiles and links `module`, which must consist of rt ops, to
/// `options.path`. On failure an existing file at that path is left as it was,
/// and an error says why. Returns the manifest that is embedded in the program.
mlir::FailureOr<Manifest> buildExecutable(mlir::ModuleOp module,
                                          const ExecutableOptions &options);

} // namespace fsdpc::codegen

// From the final module to the executable: kernels and program to objects, then
// the system's linker.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/LLVM.h"
#include "runtime/core/manifest.h"

namespace fsdpc {

// Writes the executable to `path` under a temporary name first; on failure the
// old file stays and an error says why. `commandLine` is kept for --info.
// Returns what the program says of itself.
mlir::FailureOr<Manifest> buildExecutable(mlir::ModuleOp module,
                                          llvm::StringRef path,
                                          llvm::StringRef commandLine);

} // namespace fsdpc

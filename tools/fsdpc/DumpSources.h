// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which files a dump may take weights from.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace fsdpc::driver {

/// A dump names files whose bytes become weights, and stand in what the program
/// saves. Whoever compiles a stranger's dump must not hand out files of their
/// own, so all that `module` names must lie in the folder of `dump`, in a
/// folder beneath it, or in one of `folders` (--weights). Links are followed
/// first. Emits an error at the parameter that names another file.
llvm::LogicalResult checkSources(mlir::ModuleOp module, llvm::StringRef dump,
                                 const std::vector<std::string> &folders);

} // namespace fsdpc::driver

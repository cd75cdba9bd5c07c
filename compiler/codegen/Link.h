// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links objects with the runtime's archive, in this process.
#pragma once

#include "compiler/codegen/nvvm/Toolkit.h"
#include "compiler/options/Options.h"

namespace fsdpc::codegen {

/// What a link needs apart from the objects. Both paths exist.
struct LinkInputs {
  std::string folder;  ///< start files, stubs of the system's libraries, oneDNN
  std::string archive; ///< path of the runtime for the target
};

/// Returns the path of the runtime's archive for a target, beside the compiler
/// in the build as well as when installed. It need not exist.
std::string runtimeArchive(fsdp::Target target);

/// Returns what a link for `--target=target` needs from this machine. Emits an
/// error at `loc` that says how to get it if something is missing: the driver
/// asks before it imports a model, because a compile can take minutes.
mlir::FailureOr<LinkInputs> findLinkInputs(mlir::Location loc,
                                           fsdp::Target target);

/// Links `objects` and the runtime for `--target=target` into the executable
/// `output`. `toolkit` is used for cuda only. Emits an error at `loc` if the
/// inputs above cannot be found, or with the linker's message if it fails.
mlir::LogicalResult linkProgram(mlir::Location loc, fsdp::Target target,
                                const CudaToolkit &toolkit,
                                llvm::ArrayRef<std::string> objects,
                                llvm::StringRef output);

} // namespace fsdpc::codegen

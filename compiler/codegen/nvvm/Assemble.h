// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Assembles PTX to machine code and packs one fat binary, with the tools of the
// CUDA toolkit.
#pragma once

#include "compiler/codegen/nvvm/GpuArch.h"
#include "compiler/codegen/nvvm/Toolkit.h"

#include <string>
#include <vector>

namespace fsdpc::codegen {

/// The figures that ptxas reports about a kernel on one architecture. Bytes are
/// per thread, except for shared memory, which is per block.
struct KernelFigures {
  std::string kernel, arch;
  int64_t registers = 0, stackBytes = 0, spillStores = 0, spillLoads = 0,
          sharedBytes = 0;
};

/// Returns a fat binary with a cubin for each architecture and the PTX of the
/// last. `ptx[i]` is the text for `archs[i]`. Work files go to `folder` and
/// stay there. Appends the figures of each kernel to `figures`. Emits an error
/// at `loc` if a tool fails.
mlir::FailureOr<std::string>
assembleKernels(mlir::Location loc, const CudaToolkit &toolkit,
                llvm::ArrayRef<GpuArch> archs, llvm::ArrayRef<std::string> ptx,
                llvm::StringRef folder, std::vector<KernelFigures> &figures);

} // namespace fsdpc::codegen

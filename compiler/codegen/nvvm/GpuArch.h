// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The GPU architectures that kernels are compiled for.
#pragma once

#include "compiler/options/Options.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <memory>

namespace llvm {
class TargetMachine;
}

namespace fsdpc::codegen {

/// An architecture, and the lowest PTX version that knows it. LLVM ends the
/// process if it is asked for a lower version.
struct GpuArch {
  llvm::StringRef name;
  int number;          ///< 90 for sm_90
  int ptx;             ///< 80 for version 8.0
  int64_t sharedBytes; ///< shared memory of a multiprocessor
};

/// Returns the architectures of --gpu-arch.
llvm::SmallVector<GpuArch> gpuArchs(llvm::ArrayRef<fsdp::Gpu> gpus);

/// Creates LLVM's code generator for an architecture.
std::unique_ptr<llvm::TargetMachine> makeGpuMachine(const GpuArch &arch);

} // namespace fsdpc::codegen

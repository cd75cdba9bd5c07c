// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the CUDA toolkit on the machine that compiles.
#pragma once

#include "mlir/IR/Location.h"
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace fsdpc::codegen {

/// Paths of a toolkit, all absolute.
struct CudaToolkit {
  std::string root;
  /// What programs are linked with: cudart, cublasLt, cudnn and nccl.
  std::vector<std::string> libraries;
  /// Returns the path of one of the toolkit's programs.
  std::string program(llvm::StringRef name) const { // "ptxas"
    return root + "/bin/" + name.str();
  }
  /// Returns the folders of the libraries.
  std::vector<std::string> libraryFolders() const;
};

/// Returns the toolkit in `folder`, which may be `nvidia/cu13` of NVIDIA's
/// packages from PyPI. If `folder` is empty, tries $CUDA_HOME, $CUDA_PATH,
/// /usr/local/cuda, the place of nvcc on PATH and Python's packages: those
/// beside the package that has this compiler, and those of $VIRTUAL_ENV and
/// $CONDA_PREFIX. Returns the first complete one. Otherwise emits an error at
/// `loc` that says what is missing where, and how to install it.
mlir::FailureOr<CudaToolkit> findCudaToolkit(mlir::Location loc,
                                             llvm::StringRef folder);

} // namespace fsdpc::codegen

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the CUDA toolkit on the machine that compiles.
#pragma once

#include "mlir/IR/Location.h"
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace fsdpc::codegen {

/// Paths of a toolkit; both folders are absolute.
struct CudaToolkit {
  std::string root;
  std::string libraries; ///< folder with libcudart.so and the others
  /// Returns the path of one of the toolkit's programs.
  std::string program(llvm::StringRef name) const { // "ptxas"
    return root + "/bin/" + name.str();
  }
};

/// Returns the toolkit in `folder`. If `folder` is empty, tries $CUDA_HOME,
/// $CUDA_PATH, /usr/local/cuda and the place of nvcc on PATH, and returns the
/// first complete one. Otherwise emits an error at `loc` that says what is
/// missing where.
mlir::FailureOr<CudaToolkit> findCudaToolkit(mlir::Location loc,
                                             llvm::StringRef folder);

} // namespace fsdpc::codegen

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The processor that kernels are compiled for, as --cpu names it.
#pragma once

#include "mlir/IR/Location.h"
#include "mlir/Support/LLVM.h"

#include "llvm/Support/CodeGen.h"

#include <memory>
#include <string>
#include <vector>

namespace llvm {
class TargetMachine;
}

namespace fsdpc::codegen {

/// A processor in LLVM's terms. `cpu` is x86-64-v3 or x86-64-v4, or x86-64 if
/// any processor will do. `native` resolves to v3 or v4, plus bf16 rounding if
/// this machine has it.
struct TargetOptions {
  std::string cpu;
  std::string tuneFor; ///< affects instruction scheduling only
  /// The features, in LLVM's names ("avx512bf16"), that kernels use. The
  /// program checks for them when it starts.
  std::vector<std::string> features;
  bool hasAvx512() const;
  bool hasBf16() const;
};

/// Resolves `name`, which is native (or empty), x86-64-v3 or x86-64-v4. Emits
/// an error at `loc` for another name, or if this machine is below x86-64-v3
/// and the name is native.
llvm::FailureOr<TargetOptions> resolveTarget(mlir::Location loc,
                                             llvm::StringRef name);

/// Returns the baseline x86-64, for programs whose kernels run on a GPU.
TargetOptions anyProcessor();

/// Creates LLVM's code generator for the target, for position-independent code.
std::unique_ptr<llvm::TargetMachine>
makeTargetMachine(const TargetOptions &options, llvm::CodeGenOptLevel level);

} // namespace fsdpc::codegen

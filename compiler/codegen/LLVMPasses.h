// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLVM's optimiser and code generator, used for processors and for GPUs.
#pragma once

#include <string>

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace fsdpc::codegen {

/// Runs the pipeline of -O3 on `module`. The vectorisers are off: kernels are
/// in vector form already, and the scalar tails must keep their order of
/// additions.
void optimize(llvm::Module &module, llvm::TargetMachine &machine);

/// Returns the object file of `module` as bytes, or the text of its PTX if
/// `machine` is a GPU.
std::string generateCode(llvm::Module &module, llvm::TargetMachine &machine);

} // namespace fsdpc::codegen

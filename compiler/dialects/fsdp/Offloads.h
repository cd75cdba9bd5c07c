// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The values that ops of FSDPOffload.td move, and the attribute of a module
// that says which of them do.
#pragma once

#include "mlir/IR/ValueRange.h"
#include "mlir/Support/LLVM.h"

namespace fsdpc::fsdp {

/// A dictionary on the module: the activations that leave the memory, out of
/// those that could.
constexpr llvm::StringLiteral kOffloadedAttr = "fsdp.offloaded";

/// Returns the values that `held`, of type fsdp.offloaded, stands for, or
/// failure if no offload defines it.
llvm::FailureOr<mlir::ValueRange> offloadedValues(mlir::Value held);

} // namespace fsdpc::fsdp

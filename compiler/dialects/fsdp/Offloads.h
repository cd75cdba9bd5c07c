// The values that ops of FSDPOffload.td move.
#pragma once

#include "mlir/IR/ValueRange.h"
#include "mlir/Support/LLVM.h"

namespace fsdpc::fsdp {

/// Returns the values that `held`, of type fsdp.offloaded, stands for, or
/// failure if no offload defines it.
llvm::FailureOr<mlir::ValueRange> offloadedValues(mlir::Value held);

/// Returns the bytes that a value takes in the file, those of the dense tensor.
int64_t fileBytesOf(mlir::Value value);

} // namespace fsdpc::fsdp

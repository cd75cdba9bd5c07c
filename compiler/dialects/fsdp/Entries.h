// The entry functions of a module.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fsdpc::fsdp {

/// Returns the function @microbatch or @update. Emits an error if the module
/// lacks it.
inline llvm::FailureOr<mlir::func::FuncOp> getEntry(mlir::ModuleOp module,
                                                    llvm::StringRef name) {
  auto function = module.lookupSymbol<mlir::func::FuncOp>(name);
  if (!function || !function.getBody().hasOneBlock())
    return mlir::emitError(module.getLoc())
           << "expected a function '" << name << "' with a single block";
  return function;
}

/// Returns @microbatch: one microbatch's forward, backward and reduction.
inline llvm::FailureOr<mlir::func::FuncOp>
getMicrobatch(mlir::ModuleOp module) {
  return getEntry(module, FSDPDialect::kMicrobatch);
}

} // namespace fsdpc::fsdp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The entry functions of a module.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SmallVector.h"

namespace fsdpc::fsdp {

/// The name of the forward that computes the loss for an evaluation.
inline constexpr llvm::StringLiteral kEvaluate = "evaluate";

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

/// Returns @evaluate, or null: a dump may lack it.
inline mlir::func::FuncOp findEvaluate(mlir::ModuleOp module) {
  auto function = module.lookupSymbol<mlir::func::FuncOp>(kEvaluate);
  return function && function.getBody().hasOneBlock() ? function
                                                      : mlir::func::FuncOp();
}

/// Returns the functions that compute with parameters: @microbatch, then
/// @evaluate if the module has it. Emits an error if @microbatch is missing.
inline llvm::FailureOr<llvm::SmallVector<mlir::func::FuncOp, 2>>
getForwards(mlir::ModuleOp module) {
  auto microbatch = getMicrobatch(module);
  if (llvm::failed(microbatch))
    return llvm::failure();
  llvm::SmallVector<mlir::func::FuncOp, 2> functions = {*microbatch};
  if (mlir::func::FuncOp evaluate = findEvaluate(module))
    functions.push_back(evaluate);
  return functions;
}

/// Returns those entry functions of the module that exist, in the order of the
/// program: @microbatch, @update, @evaluate. Unlike getForwards it never fails,
/// so verifiers and dumps of any phase may use it.
inline llvm::SmallVector<mlir::func::FuncOp, 3>
entriesOf(mlir::ModuleOp module) {
  llvm::SmallVector<mlir::func::FuncOp, 3> functions;
  for (llvm::StringRef name :
       {llvm::StringRef(FSDPDialect::kMicrobatch),
        llvm::StringRef(FSDPDialect::kUpdate), llvm::StringRef(kEvaluate)})
    if (auto function = module.lookupSymbol<mlir::func::FuncOp>(name))
      functions.push_back(function);
  return functions;
}

} // namespace fsdpc::fsdp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops of each kind of hook on the reduction. ReduceHooks.h puts them behind
// the gradients.
#pragma once

#include "compiler/options/Options.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OwningOpRef.h"

namespace fsdpc::passes {

/// Builds one hook at the builder's insertion point, on the gradient of a
/// parameter in f32. `program` is the function of a hook of the user's, else
/// null. Returns the gradient that the next hook takes. The last result has the
/// type of `gradient`.
mlir::Value buildHook(mlir::OpBuilder &builder, mlir::Location loc,
                      const fsdp::ReduceHook &hook, mlir::func::FuncOp program,
                      mlir::Value gradient);

/// Parses the file of a hook of the user's and checks its function: elementwise
/// `nn` ops on tensor<1xf32>, which stands for a gradient of any shape. Emits
/// an error and returns null if it is something else.
mlir::OwningOpRef<mlir::ModuleOp> parseHookProgram(const fsdp::ReduceHook &hook,
                                                   mlir::MLIRContext *context);

/// Returns the function of the hook in a module that parseHookProgram has
/// checked. Owned by the module.
mlir::func::FuncOp functionOf(const fsdp::ReduceHook &hook,
                              mlir::ModuleOp module);

} // namespace fsdpc::passes

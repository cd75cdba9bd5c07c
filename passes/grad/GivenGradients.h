// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients that the model computes itself (--gradient).
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::passes {

/// Makes what only the `fsdp.gradient` ops of the body need its backward: it
/// follows the forward, in the order of the model, and has units as the
/// backward of a differentiated forward has them. Returns the names of the
/// parameters that have a gradient.
llvm::DenseSet<mlir::StringAttr> takeGivenGradients(mlir::ModuleOp module,
                                                    mlir::Block &body);

} // namespace fsdpc::passes

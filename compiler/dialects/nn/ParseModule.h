// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads modules of files from outside: dumps, and the optimizers and hooks of
// users.
#pragma once

#include "compiler/dialects/nn/DiscardableAttributes.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace fsdpc::nn {

/// The largest number of elements of a tensor of a dump.
constexpr int64_t kMostElements = int64_t(1) << 40;

/// Parses and verifies the text of a module, which may be hostile. `path` names
/// it in locations. Returns null after one error if the text is no valid module
/// or has attributes that nothing reads (verifyKnownAttributes).
mlir::OwningOpRef<mlir::ModuleOp>
parseModule(const std::string &text, llvm::StringRef path,
            mlir::MLIRContext *context,
            llvm::ArrayRef<FormerAttribute> former = {});

} // namespace fsdpc::nn

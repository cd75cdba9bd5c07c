// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A module as a manifest before there is a program: plain data of the runtime,
// so that passes and code generation ask one function (planMemory) how much a
// rank holds.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "runtime/abi/manifest.h"

namespace fsdpc::fsdp {

/// Returns the options, layouts, buffers, and the inputs of @microbatch if it
/// still has arguments. Sources of initial values, plans and the arena are left
/// empty.
Manifest describeModule(mlir::ModuleOp module);

/// Returns the name of an element type in the manifest: "f32", "i64".
std::string dtypeName(mlir::Type type);

} // namespace fsdpc::fsdp

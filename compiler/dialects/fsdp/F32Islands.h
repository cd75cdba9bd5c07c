// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The attribute of a module that counts what it computes in f32 beside 16 bits.
#pragma once

#include "mlir/Support/LLVM.h"

namespace fsdpc::fsdp {

/// A dictionary of i64 on the module: ops of the forward that --param-dtype
/// leaves in f32, on `data` (inputs and positions) and on `parameters`.
constexpr llvm::StringLiteral kF32IslandsAttr = "fsdp.f32_islands";

} // namespace fsdpc::fsdp

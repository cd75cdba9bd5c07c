// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts what a forward in 16 bits computes in f32, for the compile's summary.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <cstdint>

namespace fsdpc::passes {

class F32Islands {
public:
  /// Counts an op of the forward that computes in f32, unless it only moves
  /// elements or computes no floats.
  void add(mlir::Operation *op, bool readsParameters);
  /// Writes `fsdp.f32_islands` on the module if anything was counted.
  void write(mlir::ModuleOp module) const;

private:
  int64_t ofData = 0, ofParameters = 0;
};

} // namespace fsdpc::passes

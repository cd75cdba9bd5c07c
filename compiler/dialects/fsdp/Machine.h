// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The machine of a rank of this compile, for the cost model.
#pragma once

#include "compiler/schedule/machine.h"

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::fsdp {

/// Returns the machine that the options plan for: that of --machine, or the
/// default of the target, for CUDA of the newest of --gpu-arch; with
/// --plan-threads cores on the host, --plan-ranks ranks, and nodes of
/// --plan-ranks-per-node.
schedule::Machine machineOf(mlir::ModuleOp module);

/// Returns how many times as long as by its flops the op takes, a product,
/// since its tiles do not fill all processors (schedule::tilingFactor); 1 for
/// others.
double tilingFactor(mlir::Operation *op, const schedule::Machine &machine);

/// Returns the µs of an op that annotate-costs has annotated, from its
/// `fsdp.flops` and `fsdp.bytes`, rounded to nanoseconds as in dumps. An op
/// without an operand of floats computes in `otherwise`.
double opUs(mlir::Operation *op, const schedule::Machine &machine,
            ElementType otherwise);

} // namespace fsdpc::fsdp

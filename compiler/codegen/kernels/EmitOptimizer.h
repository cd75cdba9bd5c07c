// The optimizer's scalar program as a loop over a shard's elements.
#pragma once

#include "compiler/codegen/kernels/ElementEmitter.h"

namespace fsdpc::kernels {

/// `program` is (f32 parameter, f32 gradient, f32 states…, f64 lr, f64 step,
/// f64 decay) -> (f32 parameter, f32 states…). Builds the body of `function`
/// over the buffers of fsdpc_optimizer, with a bf16 copy of the parameter where
/// `computeCopy` says so. What depends on lr, step and decay alone is computed
/// once a call.
void emitOptimizer(mlir::OpBuilder &builder, mlir::func::FuncOp program,
                   mlir::func::FuncOp function, bool computeCopy,
                   const VectorTarget &target);

} // namespace fsdpc::kernels

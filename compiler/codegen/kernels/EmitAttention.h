// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The softmax of attention: what happens to a block of scores between the two
// matrix products.
#pragma once

#include "compiler/codegen/kernels/ElementEmitter.h"

namespace fsdpc::codegen::kernels {

/// Builds the body of `function` from `program`, which holds one nn.attention
/// or nn.attention_grad. The buffers are those of fsdpc_attention or
/// fsdpc_attention_grad (fsdpc.h). The number of keys and the row strides are
/// run-time numbers, so one kernel serves every block.
void emitAttention(mlir::OpBuilder &builder, mlir::func::FuncOp program,
                   mlir::func::FuncOp function, const VectorTarget &target);

} // namespace fsdpc::codegen::kernels

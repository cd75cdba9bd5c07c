// How far the kernels' buffers are aligned in the plan of memory.
#pragma once

#include "mlir/IR/BuiltinOps.h"

namespace fsdpc::simt {

/// Sets nn.alignments of each kernel that rt.launch calls: for its operands,
/// then results, the bytes that divide their places in all launches, 16 at
/// most.
void setAlignments(mlir::ModuleOp module);

} // namespace fsdpc::simt

// What the files of the reference interpreter share: one function a family of
// ops, and walks over indices.
#pragma once

#include "compiler/dialects/nn/reference/Reference.h"

namespace fsdpc::nn::reference {

using Inputs = llvm::ArrayRef<ReferenceTensor>;

/// Each evaluates `op` where it is of its family and says whether it was.
/// `out` has a tensor of zeros for each result, rounded by the caller.
bool evaluateElementwise(mlir::Operation *op, Inputs in, ReferenceTensors &out);
bool evaluateDropout(mlir::Operation *op, Inputs in, ReferenceTensors &out);
bool evaluateShape(mlir::Operation *op, Inputs in, ReferenceTensors &out);
bool evaluateReduction(mlir::Operation *op, Inputs in, ReferenceTensors &out);
bool evaluateNorm(mlir::Operation *op, Inputs in, ReferenceTensors &out);
bool evaluateLoss(mlir::Operation *op, Inputs in, ReferenceTensors &out);
bool evaluateAttention(mlir::Operation *op, Inputs in, ReferenceTensors &out);
bool evaluateMatmul(mlir::Operation *op, Inputs in, ReferenceTensors &out);
bool evaluateConvolution(mlir::Operation *op, Inputs in, ReferenceTensors &out);
bool evaluatePooling(mlir::Operation *op, Inputs in, ReferenceTensors &out);

using Index = llvm::ArrayRef<int64_t>;

/// Calls `visit(index, position)` for each element in row-major order.
void forEachIndex(llvm::ArrayRef<int64_t> shape,
                  llvm::function_ref<void(Index, int64_t)> visit);

/// Row-major position of an index.
int64_t positionOf(llvm::ArrayRef<int64_t> shape, Index index);

/// Position of `index` in a tensor of `shape` that broadcasts to the index's.
int64_t broadcastPosition(llvm::ArrayRef<int64_t> shape, Index index);

/// The input that stands at `operand`, or null where an optional is absent.
template <typename Range>
const ReferenceTensor *optionalInput(Inputs in, const Range &operand) {
  return operand.empty() ? nullptr : &in[operand.begin()->getOperandNumber()];
}

} // namespace fsdpc::nn::reference

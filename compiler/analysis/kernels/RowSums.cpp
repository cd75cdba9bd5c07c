// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The form of a sum over blocks of rows; see RowSums.h.
#include "compiler/analysis/kernels/RowSums.h"

#include "compiler/analysis/kernels/ReductionOrder.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;
using nn::shapeOf;

bool analysis::sumsBlocksOfRows(nn::ReduceOp op) {
  Type sum = op.getType().getElementType();
  return op.getKind() == nn::ReduceKind::sum &&
         op.getInput().getType().getRank() == 3 &&
         op.getAxes() == ArrayRef<int64_t>{1} &&
         shapeOf(op.getInput())[1] <= kRowBlock && (sum.isF32() || sum.isF64());
}

std::optional<RowSums> analysis::rowSumsOf(Operation *op) {
  auto reduce = dyn_cast<nn::ReduceOp>(op);
  if (!reduce || !sumsBlocksOfRows(reduce))
    return std::nullopt;
  auto blocks = reduce.getInput().getDefiningOp<nn::ReshapeOp>();
  ArrayRef<int64_t> shape = shapeOf(reduce.getInput());
  if (!blocks || shapeOf(blocks.getInput()).size() < 2 ||
      shapeOf(blocks.getInput()).back() != shape[2])
    return std::nullopt;
  return RowSums{blocks.getInput(), shape[1]};
}

// What library ops tell the runtime: shapes and strides as plan attributes.
#pragma once

#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/rt/RTDialect.h"

namespace fsdpc {

rt::MatmulPlanAttr matmulPlan(nn::MatmulOp op);

// Plans for "forward", "input" and "weight" convolutions; the shapes are those
// of the input, the filter and the output, whichever of them the op computes.
template <typename ConvOp>
rt::ConvolutionPlanAttr convolutionPlan(ConvOp op, llvm::StringRef kind,
                                        mlir::Value input, mlir::Value filter,
                                        mlir::Value output) {
  auto array = [&](llvm::ArrayRef<int64_t> values) {
    return mlir::DenseI64ArrayAttr::get(op.getContext(), values);
  };
  auto shape = [&](mlir::Value value) {
    return array(
        llvm::cast<mlir::RankedTensorType>(value.getType()).getShape());
  };
  auto element =
      llvm::cast<mlir::RankedTensorType>(input.getType()).getElementType();
  return rt::ConvolutionPlanAttr::get(
      op.getContext(), kind, element, shape(input), shape(filter),
      shape(output), array(op.getStrides()), array(op.getPads()),
      array(op.getDilations()), static_cast<int64_t>(op.getGroups()));
}

// Plans for pooling ops; `input` and `output` are those of the forward.
template <typename PoolOp>
rt::PoolingPlanAttr poolingPlan(PoolOp op, llvm::StringRef kind,
                                mlir::Value input, mlir::Value output,
                                bool countPadding) {
  auto array = [&](llvm::ArrayRef<int64_t> values) {
    return mlir::DenseI64ArrayAttr::get(op.getContext(), values);
  };
  auto type = [](mlir::Value value) {
    return llvm::cast<mlir::RankedTensorType>(value.getType());
  };
  return rt::PoolingPlanAttr::get(
      op.getContext(), kind, type(input).getElementType(),
      array(type(input).getShape()), array(type(output).getShape()),
      array(op.getKernel()), array(op.getStrides()), array(op.getPads()),
      countPadding);
}

} // namespace fsdpc

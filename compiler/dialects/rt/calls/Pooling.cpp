// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls of fsdpc_pooling: forward and gradient have one plan, which names the
// shapes of the forward's input and output.
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/rt/calls/Plan.h"

using namespace mlir;

namespace fsdpc::rt {

namespace {

// Takes input and output in the roles of the forward; for a gradient, the
// result is the input's and the operand the output's.
template <typename PoolOp>
PoolingPlanAttr planOf(PoolOp op, StringRef kind, Value input, Value output,
                       bool countPadding) {
  return PoolingPlanAttr::get(
      op.getContext(), kind, nn::tensorType(input).getElementType(),
      shapeAttr(input), shapeAttr(output), arrayAttr(op, op.getKernel()),
      arrayAttr(op, op.getStrides()), arrayAttr(op, op.getPads()), countPadding,
      libraryOf(op));
}

// A maximum has no divisor, so `countPadding` does not matter to it.
PoolingPlanAttr planOf(nn::MaxPool2dOp op) {
  return planOf(op, "max", op.getInput(), op.getResult(), false);
}
PoolingPlanAttr planOf(nn::MaxPool2dGradOp op) {
  return planOf(op, "max_grad", op.getResult(), op.getGrad(), false);
}
PoolingPlanAttr planOf(nn::AvgPool2dOp op) {
  return planOf(op, "average", op.getInput(), op.getResult(),
                op.getCountPadding());
}
PoolingPlanAttr planOf(nn::AvgPool2dGradOp op) {
  return planOf(op, "average_grad", op.getResult(), op.getGrad(),
                op.getCountPadding());
}

// The indices of the maxima; a mean has none.
template <typename PoolOp> Value workspaceOf(PoolOp) { return {}; }
Value workspaceOf(nn::MaxPool2dOp op) { return op.getIndex(); }
Value workspaceOf(nn::MaxPool2dGradOp op) { return op.getIndex(); }

template <typename PoolOp>
struct PoolingCall
    : RuntimeCallOpInterface::ExternalModel<PoolingCall<PoolOp>, PoolOp> {
  Attribute getPlan(Operation *op) const { return planOf(cast<PoolOp>(op)); }
  void createCall(Operation *op, CallBuilder &calls) const {
    auto pool = cast<PoolOp>(op);
    // Operand 0 is the input of the forward or the gradient of the output. The
    // workspace is written by the forward and read by the gradient.
    Value source = calls.pointer(pool->getOperand(0));
    Value destination = calls.pointer(pool.getResult());
    Value workspace = calls.pointer(workspaceOf(pool));
    calls.call<PoolingOp>(planOf(pool), source, destination, workspace);
  }
};

} // namespace

void attachPoolingCalls(MLIRContext *context) {
  nn::MaxPool2dOp::attachInterface<PoolingCall<nn::MaxPool2dOp>>(*context);
  nn::MaxPool2dGradOp::attachInterface<PoolingCall<nn::MaxPool2dGradOp>>(
      *context);
  nn::AvgPool2dOp::attachInterface<PoolingCall<nn::AvgPool2dOp>>(*context);
  nn::AvgPool2dGradOp::attachInterface<PoolingCall<nn::AvgPool2dGradOp>>(
      *context);
}

} // namespace fsdpc::rt

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls of fsdpc_convolution: the forward and both gradients have one plan,
// which names the shapes of input, filter and output, whichever is computed.
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/rt/calls/Plan.h"

using namespace mlir;

namespace fsdpc::rt {

namespace {

// Takes input, filter and output in the roles of the forward. One of the three
// is the result, depending on the op.
template <typename ConvOp>
ConvolutionPlanAttr planOf(ConvOp op, StringRef kind, Value input, Value filter,
                           Value output) {
  return ConvolutionPlanAttr::get(
      op.getContext(), kind, nn::tensorType(input).getElementType(),
      shapeAttr(input), shapeAttr(filter), shapeAttr(output),
      arrayAttr(op, op.getStrides()), arrayAttr(op, op.getPads()),
      arrayAttr(op, op.getDilations()), static_cast<int64_t>(op.getGroups()),
      libraryOf(op));
}

// The kinds are those of the manifest: what the call computes.
ConvolutionPlanAttr planOf(nn::Conv2dOp op) {
  return planOf(op, "forward", op.getInput(), op.getFilter(), op.getResult());
}
ConvolutionPlanAttr planOf(nn::Conv2dGradInputOp op) {
  return planOf(op, "input", op.getResult(), op.getFilter(), op.getGrad());
}
ConvolutionPlanAttr planOf(nn::Conv2dGradFilterOp op) {
  return planOf(op, "weight", op.getInput(), op.getResult(), op.getGrad());
}

// The call's operands in its order: x and w, dy and w, x and dy.
std::pair<Value, Value> operandsOf(nn::Conv2dOp op) {
  return {op.getInput(), op.getFilter()};
}
std::pair<Value, Value> operandsOf(nn::Conv2dGradInputOp op) {
  return {op.getGrad(), op.getFilter()};
}
std::pair<Value, Value> operandsOf(nn::Conv2dGradFilterOp op) {
  return {op.getInput(), op.getGrad()};
}

template <typename ConvOp>
struct ConvolutionCall
    : RuntimeCallOpInterface::ExternalModel<ConvolutionCall<ConvOp>, ConvOp> {
  Attribute getPlan(Operation *op) const { return planOf(cast<ConvOp>(op)); }
  void createCall(Operation *op, CallBuilder &calls) const {
    // Pointers are built in a fixed order, so that dumps are the same each
    // time.
    auto convolution = cast<ConvOp>(op);
    auto [first, second] = operandsOf(convolution);
    Value x = calls.pointer(first);
    Value w = calls.pointer(second);
    Value y = calls.pointer(convolution.getResult());
    calls.call<ConvolutionOp>(planOf(convolution), x, w, y);
  }
};

} // namespace

void attachConvolutionCalls(MLIRContext *context) {
  nn::Conv2dOp::attachInterface<ConvolutionCall<nn::Conv2dOp>>(*context);
  nn::Conv2dGradInputOp::attachInterface<
      ConvolutionCall<nn::Conv2dGradInputOp>>(*context);
  nn::Conv2dGradFilterOp::attachInterface<
      ConvolutionCall<nn::Conv2dGradFilterOp>>(*context);
}

} // namespace fsdpc::rt

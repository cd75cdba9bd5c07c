// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls of fsdpc_attention and fsdpc_attention_grad: both have one plan.
// Operands and results may lie with strides, which the plan takes from the ops
// around.
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/Strided.h"
#include "compiler/dialects/rt/calls/Plan.h"

using namespace mlir;

namespace fsdpc::rt {

namespace {

// Returns the strides of batch, head and row (and key, for a mask), in
// elements. Dimensions of size 1 have stride 0. The plan has no stride for the
// elements of a row: libraries require them to be dense.
DenseI64ArrayAttr stridesOf(Value tensor, size_t count) {
  std::optional<nn::Strides> strides = nn::stridesOf(tensor);
  assert(strides && "verify-memory lets no other mark through");
  return DenseI64ArrayAttr::get(tensor.getContext(),
                                ArrayRef(strides->strides).take_front(count));
}

// `grad` and the cotangents are null in the forward. Two ops with equal plans
// share one entry of the manifest. Null, with an error, if an edited dump asks
// for what no library computes.
template <typename AttentionLike>
AttentionPlanAttr planOf(AttentionLike op, Value output, Value grad = {},
                         Value dquery = {}, Value dkey = {},
                         Value dvalue = {}) {
  auto strides = [](Value tensor) {
    return tensor ? stridesOf(tensor, 3) : DenseI64ArrayAttr();
  };
  Value mask = op.getMask();
  return AttentionPlanAttr::getChecked(
      [&] { return op.emitOpError("cannot be called: "); }, op.getContext(),
      nn::tensorType(op.getQuery()).getElementType(), shapeAttr(op.getQuery()),
      shapeAttr(op.getKey()), nn::shapeOf(op.getValue()).back(),
      op.getScaleAttr(), op.getCausal(), strides(op.getQuery()),
      strides(op.getKey()), strides(op.getValue()), strides(output),
      mask ? nn::tensorType(mask).getElementType() : Type(),
      mask ? stridesOf(mask, 4) : DenseI64ArrayAttr(), strides(grad),
      strides(dquery), strides(dkey), strides(dvalue), libraryOf(op));
}

AttentionPlanAttr planOf(nn::AttentionOp op) {
  return planOf(op, op.getResult());
}
AttentionPlanAttr planOf(nn::AttentionGradOp op) {
  return planOf(op, op.getOutput(), op.getGrad(), op.getDquery(), op.getDkey(),
                op.getDvalue());
}

// Returns a pointer to each value, in the order of the op.
SmallVector<Value> pointersOf(CallBuilder &calls, ValueRange values) {
  SmallVector<Value> pointers;
  for (Value value : values)
    pointers.push_back(calls.pointer(value));
  return pointers;
}

// Operands and results are passed in the order of the nn op, which is that of
// the C function.
struct AttentionCall
    : RuntimeCallOpInterface::ExternalModel<AttentionCall, nn::AttentionOp> {
  Attribute getPlan(Operation *op) const {
    return planOf(cast<nn::AttentionOp>(op));
  }
  void createCall(Operation *op, CallBuilder &calls) const {
    SmallVector<Value> in = pointersOf(calls, op->getOperands());
    SmallVector<Value> out = pointersOf(calls, op->getResults());
    in.resize(4); // null: no mask
    calls.call<AttentionOp>(planOf(cast<nn::AttentionOp>(op)),
                            calls.outlineRows(op), in[0], in[1], in[2], in[3],
                            out[0], out[1]);
  }
};

struct AttentionGradCall
    : RuntimeCallOpInterface::ExternalModel<AttentionGradCall,
                                            nn::AttentionGradOp> {
  Attribute getPlan(Operation *op) const {
    return planOf(cast<nn::AttentionGradOp>(op));
  }
  void createCall(Operation *op, CallBuilder &calls) const {
    SmallVector<Value> in = pointersOf(calls, op->getOperands());
    SmallVector<Value> out = pointersOf(calls, op->getResults());
    in.resize(7); // null: no mask
    calls.call<AttentionGradOp>(
        planOf(cast<nn::AttentionGradOp>(op)), calls.outlineRows(op), in[0],
        in[1], in[2], in[3], in[4], in[5], in[6], out[0], out[1], out[2]);
  }
};

} // namespace

void attachAttentionCalls(MLIRContext *context) {
  nn::AttentionOp::attachInterface<AttentionCall>(*context);
  nn::AttentionGradOp::attachInterface<AttentionGradCall>(*context);
}

} // namespace fsdpc::rt

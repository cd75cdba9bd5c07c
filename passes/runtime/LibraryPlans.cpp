// What library ops tell the runtime: shapes and strides as plan attributes.
#include "passes/runtime/LibraryPlans.h"

using namespace mlir;
using namespace fsdpc;

static RankedTensorType tensorType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static int64_t product(ArrayRef<int64_t> sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    result *= size;
  return result;
}

// Strides of a dense operand over the result's batch dimensions, in elements;
// dimensions of size 1 and absent ones do not move.
static SmallVector<int64_t> batchStrides(ArrayRef<int64_t> shape,
                                         size_t batchRank) {
  SmallVector<int64_t> strides(batchRank, 0);
  int64_t stride = shape[shape.size() - 1] * shape[shape.size() - 2];
  size_t own = shape.size() - 2;
  for (size_t i = 0; i < own; ++i) {
    int64_t size = shape[own - 1 - i];
    if (size != 1)
      strides[batchRank - 1 - i] = stride;
    stride *= size;
  }
  return strides;
}

rt::MatmulPlanAttr fsdpc::matmulPlan(nn::MatmulOp op) {
  ArrayRef<int64_t> a = tensorType(op.getLhs()).getShape();
  ArrayRef<int64_t> b = tensorType(op.getRhs()).getShape();
  ArrayRef<int64_t> c = tensorType(op.getResult()).getShape();
  int64_t m = c[c.size() - 2], n = c.back();
  int64_t k = op.getTransposeA() ? a[a.size() - 2] : a.back();
  SmallVector<int64_t> batch(c.drop_back(2));
  // Rows of all batches against one matrix are one product.
  if (b.size() == 2 && !op.getTransposeA() && a.size() == c.size()) {
    m *= product(batch);
    batch.clear();
    a = {};
    b = {};
    c = {};
  }
  auto strides = [&](ArrayRef<int64_t> shape) {
    return DenseI64ArrayAttr::get(
        op.getContext(), batch.empty() ? SmallVector<int64_t>()
                                       : batchStrides(shape, batch.size()));
  };
  return rt::MatmulPlanAttr::get(
      op.getContext(), DenseI64ArrayAttr::get(op.getContext(), batch),
      strides(a), strides(b), strides(c), m, n, k, op.getTransposeA(),
      op.getTransposeB(), tensorType(op.getLhs()).getElementType(),
      tensorType(op.getRhs()).getElementType(),
      tensorType(op.getResult()).getElementType(),
      static_cast<bool>(op.getAccumulator()));
}

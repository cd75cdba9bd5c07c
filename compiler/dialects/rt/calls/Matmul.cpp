// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls of fsdpc_matmul: one matrix product, batched, with what is added to its
// sums and what becomes of them. The plan has the shapes after the transposes;
// operands are the memory of the op's own.
#include "compiler/dialects/rt/calls/Plan.h"

#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/Products.h"

using namespace mlir;

namespace fsdpc::rt {

namespace {

// Returns the strides of a dense operand over the result's batch dimensions, in
// elements. Dimensions of size 1 and absent ones have stride 0.
SmallVector<int64_t> batchStrides(ArrayRef<int64_t> shape, size_t batchRank) {
  SmallVector<int64_t> strides(batchRank, 0);
  int64_t stride = shape[shape.size() - 1] * shape[shape.size() - 2];
  // Counts batch dimensions from the right, where shapes are aligned.
  size_t own = shape.size() - 2;
  for (size_t i = 0; i < own; ++i) {
    int64_t size = shape[own - 1 - i];
    if (size != 1)
      strides[batchRank - 1 - i] = stride;
    stride *= size;
  }
  return strides;
}

// Describes what a product does besides multiplying: what it adds to its sums,
// and what its epilogue reads and writes.
struct Ending {
  bool accumulate = false;
  Value bias, addend, input, extra;
  StringAttr epilogue;
};

// A full accumulator needs no pointer: the result begins as it, since the two
// share their memory (getOverwritten).
Ending endingOf(nn::MatmulOp op) {
  Ending ending;
  ending.accumulate = bool(nn::overwrittenBy(op));
  ending.bias = nn::biasOf(op);
  return ending;
}

Ending endingOf(nn::FusedMatmulOp op) {
  bool isPlain = op.getEpilogue() == nn::Epilogue::none;
  bool keepsInput = op.getEpilogue() == nn::Epilogue::gelu && op.getExtra();
  StringRef name =
      keepsInput ? "gelu_extra" : nn::stringifyEpilogue(op.getEpilogue());
  return {false,
          op.getBias(),
          op.getAddend(),
          op.getInput(),
          op.getExtra(),
          isPlain ? StringAttr() : StringAttr::get(op.getContext(), name)};
}

// m, n and k are those of the product after the transposes.
template <typename ProductOp> MatmulPlanAttr planOf(ProductOp op) {
  ArrayRef<int64_t> a = nn::shapeOf(op.getLhs()), b = nn::shapeOf(op.getRhs()),
                    c = nn::shapeOf(op.getResult());
  int64_t m = c[c.size() - 2], n = c.back();
  int64_t k = op.getTransposeA() ? a[a.size() - 2] : a.back();
  SmallVector<int64_t> batch(c.drop_back(2));
  // Rows of all batches against one matrix are one product. A transposed A is
  // K×M in each batch, so its rows do not follow each other in memory.
  if (b.size() == 2 && !op.getTransposeA() && a.size() == c.size()) {
    m *= llvm::product_of(batch);
    batch.clear();
    a = {};
    b = {};
    c = {};
  }
  // A product that is not batched has no strides at all.
  auto strides = [&](ArrayRef<int64_t> shape) {
    return arrayAttr(op, batch.empty() ? SmallVector<int64_t>()
                                       : batchStrides(shape, batch.size()));
  };
  auto elementOf = [](Value value) {
    return nn::tensorType(value).getElementType();
  };
  Ending ending = endingOf(op);
  return MatmulPlanAttr::get(
      op.getContext(), arrayAttr(op, batch), strides(a), strides(b), strides(c),
      m, n, k, op.getTransposeA(), op.getTransposeB(), elementOf(op.getLhs()),
      elementOf(op.getRhs()), elementOf(op.getResult()), ending.accumulate,
      bool(ending.bias), bool(ending.addend), ending.epilogue, libraryOf(op));
}

template <typename ProductOp>
struct ProductCall
    : RuntimeCallOpInterface::ExternalModel<ProductCall<ProductOp>, ProductOp> {
  Attribute getPlan(Operation *op) const { return planOf(cast<ProductOp>(op)); }
  void createCall(Operation *op, CallBuilder &calls) const {
    auto product = cast<ProductOp>(op);
    Ending ending = endingOf(product);
    Value a = calls.pointer(product.getLhs());
    Value b = calls.pointer(product.getRhs());
    Value bias = calls.pointer(ending.bias);
    Value addend = calls.pointer(ending.addend);
    Value input = calls.pointer(ending.input);
    Value c = calls.pointer(product.getResult());
    Value extra = calls.pointer(ending.extra);
    calls.call<MatmulOp>(planOf(product), a, b, bias, addend, input, c, extra);
  }
};

} // namespace

void attachMatmulCall(MLIRContext *context) {
  nn::MatmulOp::attachInterface<ProductCall<nn::MatmulOp>>(*context);
  nn::FusedMatmulOp::attachInterface<ProductCall<nn::FusedMatmulOp>>(*context);
}

} // namespace fsdpc::rt

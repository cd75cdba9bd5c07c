// Calls of fsdpc_matmul: one matrix product, batched, with what is added to its
// sums and what becomes of them. The plan has the shapes after the transposes;
// operands are the memory of the op's own.
#include "compiler/dialects/rt/calls/Plan.h"

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

// What is added to a product's sums, and what becomes of them.
struct Ending {
  bool accumulate = false, bias = false, addend = false;
  StringAttr epilogue;
};

Ending endingOf(nn::MatmulOp op) {
  return {bool(nn::overwrittenBy(op)), bool(nn::biasOf(op)), false, {}};
}

Ending endingOf(nn::FusedMatmulOp op) {
  bool isPlain = op.getEpilogue() == nn::Epilogue::none;
  bool keepsInput = op.getEpilogue() == nn::Epilogue::gelu && op.getExtra();
  StringRef name =
      keepsInput ? "gelu_extra" : nn::stringifyEpilogue(op.getEpilogue());
  return {false, bool(op.getBias()), bool(op.getAddend()),
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
      ending.bias, ending.addend, ending.epilogue, libraryOf(op));
}

struct MatmulCall
    : RuntimeCallOpInterface::ExternalModel<MatmulCall, nn::MatmulOp> {
  Attribute getPlan(Operation *op) const {
    return planOf(cast<nn::MatmulOp>(op));
  }
  void createCall(Operation *op, CallBuilder &calls) const {
    auto product = cast<nn::MatmulOp>(op);
    Value a = calls.pointer(product.getLhs());
    Value b = calls.pointer(product.getRhs());
    // A full accumulator needs no pointer: c begins as it, since the two share
    // their memory (getOverwritten).
    Value bias = calls.pointer(nn::biasOf(product));
    Value c = calls.pointer(product.getResult());
    calls.call<MatmulOp>(planOf(product), a, b, bias, /*addend=*/Value(),
                         /*input=*/Value(), c, /*extra=*/Value());
  }
};

struct FusedMatmulCall
    : RuntimeCallOpInterface::ExternalModel<FusedMatmulCall,
                                            nn::FusedMatmulOp> {
  Attribute getPlan(Operation *op) const {
    return planOf(cast<nn::FusedMatmulOp>(op));
  }
  void createCall(Operation *op, CallBuilder &calls) const {
    auto product = cast<nn::FusedMatmulOp>(op);
    Value a = calls.pointer(product.getLhs());
    Value b = calls.pointer(product.getRhs());
    Value bias = calls.pointer(product.getBias());
    Value addend = calls.pointer(product.getAddend());
    Value input = calls.pointer(product.getInput());
    Value c = calls.pointer(product.getResult());
    Value extra = calls.pointer(product.getExtra());
    calls.call<MatmulOp>(planOf(product), a, b, bias, addend, input, c, extra);
  }
};

} // namespace

void attachMatmulCall(MLIRContext *context) {
  nn::MatmulOp::attachInterface<MatmulCall>(*context);
  nn::FusedMatmulOp::attachInterface<FusedMatmulCall>(*context);
}

} // namespace fsdpc::rt

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fuse-epilogues: lets a GPU's matrix products compute what comes before or
// after them (the epilogues of cuBLASLt), which otherwise takes a kernel and a
// pass over memory. The choice depends on the ops alone, so strategies,
// schedules and recomputation change no bit. Biases are added in any case. The
// rest rounds other values than kernels do, and is for types of 16 bits and
// `--math=fast`.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/Products.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/dialects/nn/Strided.h"
#include "compiler/options/Options.h"
#include "passes/kernels/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_FUSEEPILOGUES
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// Returns true if both ops belong to one unit and direction. A product that
// read the bias of another unit would need both units gathered.
bool inOnePlace(Operation *a, Operation *b) {
  return llvm::all_of(
      ArrayRef<StringRef>{fsdp::FSDPDialect::kUnitAttr,
                          fsdp::FSDPDialect::kBackwardAttr},
      [&](StringRef name) { return a->getAttr(name) == b->getAttr(name); });
}

// Returns the call that computes `value`, if it can add a bias itself and
// nothing else reads the value; else null.
nn::LibraryCallOpInterface callOf(Value value) {
  auto product = value.getDefiningOp<nn::LibraryCallOpInterface>();
  bool fits = product && value.hasOneUse() && product.canAddBias();
  return fits ? product : nn::LibraryCallOpInterface();
}

// Returns the product of bf16 or f16 that computes `value`, if its sums go
// nowhere else until the end and it is not batched; else null.
nn::MatmulOp productOf(Value value) {
  auto product = value.getDefiningOp<nn::MatmulOp>();
  bool fits = product && nn::isHalf(nn::tensorType(value).getElementType()) &&
              nn::isOneProduct(product.getLhs(), product.getRhs(),
                               product.getTransposeA()) &&
              !nn::overwrittenBy(product);
  return fits ? product : nn::MatmulOp();
}

// Returns true if the elements of the value are contiguous. The operands of an
// attention may be strided.
bool isDense(Value value) {
  std::optional<nn::Strides> strides = nn::stridesOf(value);
  return strides &&
         strides->strides == nn::denseStrides(nn::shapeOf(value)).strides;
}

// Returns true if the value is in memory, or will be if a product reads it.
// Ops that only move elements are repeated in the kernels that read them. The
// answer does not depend on other readers, which recomputation changes.
bool isInMemory(Value value) {
  auto fusible = value.getDefiningOp<nn::FusibleOpInterface>();
  return isDense(value) &&
         !(fusible && fusible.getFusionKind() == nn::FusionKind::Movable);
}

Value withoutReshapes(Value value) {
  while (auto reshape = value.getDefiningOp<nn::ReshapeOp>())
    value = reshape.getInput();
  return value;
}

// Builds a product with an epilogue in the place of another, before `position`.
nn::FusedMatmulOp fused(nn::MatmulOp product, Operation *position,
                        nn::Epilogue epilogue, Type extra, Value addend = {},
                        Value input = {}) {
  OpBuilder builder(position);
  auto op = nn::FusedMatmulOp::create(
      builder, product.getLoc(), product.getResult().getType(), extra,
      product.getLhs(), product.getRhs(), nn::biasOf(product), addend, input,
      epilogue, product.getTransposeA(), product.getTransposeB());
  op->setDiscardableAttrs(product->getDiscardableAttrDictionary());
  return op;
}

struct FuseEpilogues : fsdpc::passes::impl::FuseEpiloguesBase<FuseEpilogues> {
  void runOnOperation() override {
    fsdp::CompileOptions options = fsdp::CompileOptions::of(getOperation());
    if (!options.isCuda())
      return markAllAnalysesPreserved();
    // Addition commutes, and exporters write the bias on either side.
    each<nn::AddOp>([&](nn::AddOp sum) {
      if (!fuseBias(sum, sum.getLhs(), sum.getRhs()))
        fuseBias(sum, sum.getRhs(), sum.getLhs());
    });
    if (!options.isFast())
      return;
    each<nn::GeluOp>([&](nn::GeluOp gelu) { fuseGelu(gelu); });
    each<nn::GeluGradOp>([&](nn::GeluGradOp grad) { fuseGeluGrad(grad); });
    // Sums of rows come after the gradients of GELU, whose products they read.
    each<nn::ReduceOp>([&](nn::ReduceOp reduce) { fuseSum(reduce); });
    each<nn::AddOp>([&](nn::AddOp sum) {
      if (!fuseAddend(sum, sum.getRhs(), sum.getLhs()))
        fuseAddend(sum, sum.getLhs(), sum.getRhs());
    });
  }

  // Calls `visit` for all ops of a kind. It may erase the op and others.
  template <typename OpTy> void each(function_ref<void(OpTy)> visit) {
    SmallVector<OpTy> ops;
    getOperation().walk([&](OpTy op) { ops.push_back(op); });
    llvm::for_each(ops, visit);
  }

  bool fuseBias(nn::AddOp sum, Value left, Value right) {
    nn::LibraryCallOpInterface product = callOf(left);
    Value bias = nn::rowOf(right);
    if (!product || !bias || !inOnePlace(product, sum))
      return false;
    // The bias may be defined between them.
    product->moveBefore(sum);
    product.addBias(bias);
    // Readers of the sum now read the product, which includes the bias.
    sum.replaceAllUsesWith(left);
    Operation *broadcast = right.getDefiningOp();
    sum.erase();
    if (broadcast->use_empty())
      broadcast->erase();
    ++biases;
    return true;
  }

  // The gradient reads GELU's input, which is then a second result.
  void fuseGelu(nn::GeluOp gelu) {
    nn::MatmulOp product = productOf(gelu.getInput());
    if (!product || !nn::endedProduct(gelu) || !inOnePlace(product, gelu))
      return;
    bool isRead = !gelu.getInput().hasOneUse();
    nn::FusedMatmulOp op = fused(product, product, nn::Epilogue::gelu,
                                 isRead ? gelu.getType() : Type());
    gelu.replaceAllUsesWith(op.getResult());
    gelu.erase();
    if (isRead)
      product.getResult().replaceAllUsesWith(op.getExtra());
    product.erase();
    ++gelus;
  }

  void fuseGeluGrad(nn::GeluGradOp grad) {
    nn::MatmulOp product = productOf(grad.getGrad());
    if (!product || !grad.getGrad().hasOneUse() || nn::biasOf(product) ||
        !nn::hasEpilogue(grad) || !isDense(grad.getInput()) ||
        !inOnePlace(product, grad))
      return;
    nn::FusedMatmulOp op = fused(product, grad, nn::Epilogue::gelu_grad, Type(),
                                 /*addend=*/Value(), grad.getInput());
    grad.replaceAllUsesWith(op.getResult());
    grad.erase();
    product.erase();
    ++gelus;
  }

  // Sums of rows that a kernel makes cost no pass over memory in that kernel.
  // Sums of rows that a library makes are the gradient of a bias, and the
  // product that makes the gradient of its weight reads the same rows.
  void fuseSum(nn::ReduceOp reduce) {
    Value rows = withoutReshapes(reduce.getInput());
    Operation *producer = rows.getDefiningOp();
    if (!producer || !nn::sumsRows(reduce) ||
        !(isa<nn::LibraryCallOpInterface>(producer) || nn::isStrided(producer)))
      return;
    for (auto [product, epilogue] : readersOf(rows, reduce))
      if (inOnePlace(product, reduce) && moveBehind(reduce, product))
        return replaceSum(reduce, product, epilogue);
  }

  // Returns the products that make the gradient of a weight from rows that
  // `reduce` adds, each with the epilogue that adds them.
  static SmallVector<std::pair<nn::MatmulOp, nn::Epilogue>>
  readersOf(Value rows, nn::ReduceOp reduce) {
    int64_t width = nn::shapeOf(reduce.getInput()).back();
    SmallVector<std::pair<nn::MatmulOp, nn::Epilogue>> found;
    SmallVector<Value> values = {rows};
    while (!values.empty()) {
      Value value = values.pop_back_val();
      for (OpOperand &use : value.getUses()) {
        if (auto reshape = dyn_cast<nn::ReshapeOp>(use.getOwner()))
          values.push_back(reshape);
        auto product = dyn_cast<nn::MatmulOp>(use.getOwner());
        if (!product || !productOf(product.getResult()) ||
            product.getAccumulator() || !product.getTransposeA() ||
            product.getTransposeB() || nn::shapeOf(value).size() != 2 ||
            nn::shapeOf(value).back() != width)
          continue;
        found.push_back({product, use.getOperandNumber() == 0
                                      ? nn::Epilogue::sum_lhs
                                      : nn::Epilogue::sum_rhs});
      }
    }
    return found;
  }

  // Moves the views of a sum behind the product. Returns false if something
  // reads the sum before the product.
  static bool moveBehind(nn::ReduceOp reduce, nn::MatmulOp product) {
    SmallVector<Operation *> views;
    for (Operation *user : reduce->getUsers()) {
      if (!user->isBeforeInBlock(product))
        continue;
      bool isView = isa<nn::ReshapeOp>(user) &&
                    llvm::none_of(user->getUsers(), [&](Operation *reader) {
                      return reader->isBeforeInBlock(product);
                    });
      if (!isView)
        return false;
      views.push_back(user);
    }
    for (Operation *view : views)
      view->moveAfter(product);
    return true;
  }

  void replaceSum(nn::ReduceOp reduce, nn::MatmulOp product,
                  nn::Epilogue epilogue) {
    auto row = nn::tensorType(reduce.getInput())
                   .clone({nn::shapeOf(reduce.getInput()).back()});
    nn::FusedMatmulOp op = fused(product, product, epilogue, row);
    OpBuilder builder(product);
    for (Operation *user : llvm::make_early_inc_range(reduce->getUsers()))
      if (auto view = dyn_cast<nn::ReshapeOp>(user);
          view && view.getType() == row) {
        view.replaceAllUsesWith(op.getExtra());
        view.erase();
      }
    if (!reduce->use_empty()) {
      Value shaped = nn::reshapeTo(builder, reduce.getLoc(), op.getExtra(),
                                   nn::shapeOf(reduce));
      shaped.getDefiningOp()->setDiscardableAttrs(
          reduce->getDiscardableAttrDictionary());
      reduce.replaceAllUsesWith(shaped);
    }
    product.getResult().replaceAllUsesWith(op.getResult());
    product.erase();
    reduce.erase();
    ++sums;
  }

  // Residual sums, and gradients that several products contribute to.
  bool fuseAddend(nn::AddOp sum, Value left, Value addend) {
    nn::MatmulOp product = productOf(left);
    if (!product || !left.hasOneUse() || !isInMemory(addend) ||
        !inOnePlace(product, sum))
      return false;
    nn::FusedMatmulOp op =
        fused(product, sum, nn::Epilogue::none, Type(), addend);
    sum.replaceAllUsesWith(op.getResult());
    sum.erase();
    product.erase();
    ++addends;
    return true;
  }
};

} // namespace

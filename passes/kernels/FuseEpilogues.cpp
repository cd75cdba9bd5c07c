// fuse-epilogues: lets a product add its bias (the epilogue of cuBLASLt), which
// otherwise needs a kernel and a pass over memory. For GPUs only.
#include "compiler/dialects/fsdp/Options.h"
#include "compiler/dialects/nn/Build.h"
#include "passes/kernels/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_FUSEEPILOGUES
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// Returns the vector that a broadcast repeats in each row of its result, or
// null.
Value rowOf(Value value) {
  auto broadcast = value.getDefiningOp<nn::BroadcastOp>();
  bool isRow = broadcast && nn::shapeOf(broadcast.getInput()) ==
                                nn::shapeOf(value).take_back(1);
  return isRow ? broadcast.getInput() : Value();
}

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
nn::LibraryCallOpInterface productOf(Value value) {
  auto product = value.getDefiningOp<nn::LibraryCallOpInterface>();
  bool fits = product && value.hasOneUse() && product.canAddBias();
  return fits ? product : nn::LibraryCallOpInterface();
}

struct FuseEpilogues : fsdpc::passes::impl::FuseEpiloguesBase<FuseEpilogues> {
  void runOnOperation() override {
    if (!fsdp::CompileOptions::of(getOperation()).isCuda())
      return;
    // Addition commutes, and exporters write the bias on either side.
    getOperation().walk([&](nn::AddOp sum) {
      if (!fuse(sum, sum.getLhs(), sum.getRhs()))
        fuse(sum, sum.getRhs(), sum.getLhs());
    });
  }

  bool fuse(nn::AddOp sum, Value left, Value right) {
    nn::LibraryCallOpInterface product = productOf(left);
    Value bias = rowOf(right);
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
};

} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// choose-libraries: chooses the library that computes each product,
// convolution, pooling and attention on a GPU, and refuses calls that no
// library can take. Libraries count rows and columns in 32 bits: oneDNN divides
// by zero for a product of 2^32 rows.
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/Products.h"
#include "compiler/options/Options.h"
#include "passes/kernels/Passes.h"

#include "llvm/Support/MathExtras.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_CHOOSELIBRARIES
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

// Returns the largest dimension of the matrices that a call works on: of the
// tensors themselves, of the rows that a product merges, and of the matrix of
// windows of a convolution.
static int64_t largestDimension(Operation *op) {
  int64_t largest = 0;
  auto add = [&](ArrayRef<int64_t> merged) {
    // Saturates, since a product that overflows is too large in any case.
    int64_t product = 1;
    for (int64_t size : merged)
      if (llvm::MulOverflow(product, size, product))
        product = INT64_MAX;
    largest = std::max(largest, product);
  };
  auto shapeOf = [](Value value) -> ArrayRef<int64_t> {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type ? type.getShape() : ArrayRef<int64_t>();
  };
  for (ValueRange values :
       {ValueRange(op->getOperands()), ValueRange(op->getResults())})
    for (Value value : values)
      for (int64_t size : shapeOf(value))
        largest = std::max(largest, size);
  // A product with one weight for all of its batch is called with the leading
  // axes merged into rows.
  if (nn::isProduct(op))
    if (shapeOf(op->getOperand(1)).size() == 2)
      add(shapeOf(op->getOperand(0)).drop_back());
  if (auto conv = dyn_cast<nn::Conv2dOp>(op)) {
    add(shapeOf(conv.getResult()).drop_front(2));
    add(shapeOf(conv.getFilter()).drop_front());
  }
  return largest;
}

// The check runs for every target: the host's library has the same limit.
static LogicalResult checkSize(Operation *op) {
  int64_t largest = largestDimension(op);
  if (largest <= INT32_MAX)
    return success();
  return op->emitError("'")
         << op->getName() << "' has " << largest
         << " rows or columns, more than the " << INT32_MAX
         << " that a library takes; make the batch or the dimension smaller";
}

namespace {

struct ChooseLibraries
    : fsdpc::passes::impl::ChooseLibrariesBase<ChooseLibraries> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    WalkResult fits = module.walk([](nn::LibraryCallOpInterface call) {
      return failed(checkSize(call)) ? WalkResult::interrupt()
                                     : WalkResult::advance();
    });
    if (fits.wasInterrupted())
      return signalPassFailure();
    if (!options.isCuda())
      return markAllAnalysesPreserved();
    StringRef asked = fsdp::nameOf(options.attention);
    WalkResult walk = module.walk([&](nn::LibraryCallOpInterface call) {
      FailureOr<StringRef> library = call.chooseLibrary(asked);
      if (failed(library))
        return WalkResult::interrupt();
      call->setAttr(nn::NNDialect::kLibraryAttr,
                    StringAttr::get(call.getContext(), *library));
      return WalkResult::advance();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace

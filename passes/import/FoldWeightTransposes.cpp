// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Folds transposes of weights into flags of the products that read them, so
// that the weight is read where it lies. Transposes of other values fold later,
// when forward and backward are canonicalized together.
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/import/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_FOLDWEIGHTTRANSPOSES
#include "passes/import/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

// Returns the load behind a transpose of the last two axes, or null. Only
// weights: a product reads them from the gathered buffer, where a transposed
// copy would take memory and time in every microbatch.
static Value transposedWeight(Value operand) {
  auto transpose = operand.getDefiningOp<nn::TransposeOp>();
  if (!transpose || !transpose.getInput().getDefiningOp<fsdp::LoadOp>())
    return nullptr;
  // The identity, with the last two exchanged.
  SmallVector<int64_t> swap =
      llvm::to_vector(llvm::seq<int64_t>(0, transpose.getPermutation().size()));
  if (swap.size() < 2)
    return nullptr;
  std::swap(swap.end()[-1], swap.end()[-2]);
  return transpose.getPermutation() == ArrayRef(swap) ? transpose.getInput()
                                                      : Value();
}

namespace {
struct FoldWeightTransposes
    : fsdpc::passes::impl::FoldWeightTransposesBase<FoldWeightTransposes> {
  void runOnOperation() override {
    // The flag is toggled, since the product may transpose the operand already.
    getOperation().walk([&](nn::MatmulOp matmul) {
      if (Value weight = transposedWeight(matmul.getLhs())) {
        matmul.getLhsMutable().assign(weight);
        matmul.setTransposeA(!matmul.getTransposeA());
        ++folded;
      }
      if (Value weight = transposedWeight(matmul.getRhs())) {
        matmul.getRhsMutable().assign(weight);
        matmul.setTransposeB(!matmul.getTransposeB());
        ++folded;
      }
    });
    // A weight may be transposed once for several products. The transpose goes
    // when the last of them has folded it.
    getOperation().walk([](nn::TransposeOp transpose) {
      if (transpose.use_empty())
        transpose.erase();
    });
  }
};
} // namespace

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Folders and canonicalisation. They change no value: x + 0, x · 1 and x / 1
// become x, and only the sign of a zero may differ. Constants are folded by the
// importer, with the reference interpreter.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace fsdpc::nn;

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

// The op is commutative, so canonicalization has moved a constant to the right.
OpFoldResult AddOp::fold(FoldAdaptor) {
  return matchSplat(getRhs()) == 0.0 ? getLhs() : OpFoldResult();
}

OpFoldResult SubOp::fold(FoldAdaptor) {
  return matchSplat(getRhs()) == 0.0 ? getLhs() : OpFoldResult();
}

// x · 0 is not folded: it is NaN for an infinite x.
OpFoldResult MulOp::fold(FoldAdaptor) {
  if (matchSplat(getRhs()) == 1.0)
    return getLhs();
  return matchSplat(getLhs()) == 1.0 ? getRhs() : OpFoldResult();
}

OpFoldResult DivOp::fold(FoldAdaptor) {
  return matchSplat(getRhs()) == 1.0 ? getLhs() : OpFoldResult();
}

/// Returns the input if the op does not even change its type.
template <typename Op> static OpFoldResult foldIdentity(Op op) {
  if (op.getInput().getType() == op.getType())
    return op.getInput();
  return {};
}

OpFoldResult CastOp::fold(FoldAdaptor) { return foldIdentity(*this); }

// Two broadcasts in a row are one: the inner one's dimensions of size 1 stay 1
// or are repeated by it.
OpFoldResult BroadcastOp::fold(FoldAdaptor) {
  if (auto inner = getInput().getDefiningOp<BroadcastOp>()) {
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return foldIdentity(*this);
}

// Only the last of two reshapes counts.
OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  if (auto inner = getInput().getDefiningOp<ReshapeOp>()) {
    if (inner.getInput().getType() == getType())
      return inner.getInput();
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return foldIdentity(*this);
}

// Removes an identity, and composes two transposes. Two that cancel become an
// identity here, and fold away when the folder comes back.
OpFoldResult TransposeOp::fold(FoldAdaptor) {
  ArrayRef<int64_t> permutation = getPermutation();
  if (llvm::equal(permutation, llvm::seq<int64_t>(0, permutation.size())))
    return getInput();
  auto inner = getInput().getDefiningOp<TransposeOp>();
  if (!inner)
    return {};
  SmallVector<int64_t> composed;
  for (int64_t axis : permutation)
    composed.push_back(inner.getPermutation()[axis]);
  getInputMutable().assign(inner.getInput());
  setPermutation(composed);
  return getResult();
}

OpFoldResult SliceOp::fold(FoldAdaptor) {
  // If the shapes are equal, only the direction of each dimension can differ.
  for (auto [size, stride] : llvm::zip(shapeOf(getResult()), getStrides()))
    if (size > 1 && stride != 1)
      return {};
  return foldIdentity(*this);
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  return getInputs().size() == 1 ? getInputs().front() : OpFoldResult();
}

namespace {
/// matmul(transpose(a), b) → matmul(a, b) {transpose_a}, for transposes that
/// swap the last two axes and leave the others.
struct FoldTransposes : OpRewritePattern<MatmulOp> {
  using OpRewritePattern::OpRewritePattern;

  // Returns the transpose that defines `value` if it swaps the last two axes
  // only, else null.
  static TransposeOp swapOfLastAxes(Value value) {
    auto op = value.getDefiningOp<TransposeOp>();
    if (!op)
      return nullptr;
    ArrayRef<int64_t> permutation = op.getPermutation();
    int64_t rank = permutation.size();
    auto batch = permutation.drop_back(2);
    bool swaps = permutation[rank - 2] == rank - 1 &&
                 permutation[rank - 1] == rank - 2 &&
                 llvm::equal(batch, llvm::seq<int64_t>(0, rank - 2));
    return swaps ? op : nullptr;
  }

  LogicalResult matchAndRewrite(MatmulOp op,
                                PatternRewriter &rewriter) const override {
    TransposeOp lhs = swapOfLastAxes(op.getLhs());
    TransposeOp rhs = swapOfLastAxes(op.getRhs());
    if (!lhs && !rhs)
      return failure();
    // The flags are toggled, not set: the op may transpose the operand already.
    rewriter.modifyOpInPlace(op, [&] {
      if (lhs) {
        op.getLhsMutable().assign(lhs.getInput());
        op.setTransposeA(!op.getTransposeA());
      }
      if (rhs) {
        op.getRhsMutable().assign(rhs.getInput());
        op.setTransposeB(!op.getTransposeB());
      }
    });
    return success();
  }
};
} // namespace

void MatmulOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                           MLIRContext *context) {
  patterns.add<FoldTransposes>(context);
}

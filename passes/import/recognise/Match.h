// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Helpers of the patterns of recognise-composites: looking through broadcasts
// and scalar factors, and building ops at the place of the pattern's root.
#pragma once

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/NNDialect.h"

#include "mlir/IR/PatternMatch.h"

namespace fsdpc::passes::recognise {

/// One function per composite.
void populateAttention(mlir::RewritePatternSet &patterns);
void populateBinaryCrossEntropy(mlir::RewritePatternSet &patterns);
void populateCrossEntropy(mlir::RewritePatternSet &patterns);
void populateGelu(mlir::RewritePatternSet &patterns);
void populateLinearCrossEntropy(mlir::RewritePatternSet &patterns);
void populateNorms(mlir::RewritePatternSet &patterns);
void populateRotary(mlir::RewritePatternSet &patterns);
void populateSilu(mlir::RewritePatternSet &patterns);
void populateStableForms(mlir::RewritePatternSet &patterns);

/// Six axes without an allocation, which most tensors stay below.
using Shape = llvm::SmallVector<int64_t, 6>;

/// Returns true if two numbers are equal up to f32 rounding, a relative error
/// of 1e-6.
bool isNear(double value, double expected);
/// Returns true if every element of `value` is near `expected`.
bool isSplat(mlir::Value value, double expected);

/// Returns the value below any broadcasts, or below any reshapes.
mlir::Value throughBroadcasts(mlir::Value value);
mlir::Value throughReshapes(mlir::Value value);

/// Strips multiplications and divisions by a scalar constant from a value, and
/// multiplies them into `factor`. Returns `value` itself if there are none.
mlir::Value throughScaling(mlir::Value value, double &factor);

/// Returns the other operand of a commutative op if one satisfies `matches`,
/// else null.
template <typename OpT, typename Match>
mlir::Value otherOperand(mlir::Value value, Match matches) {
  auto op = value.getDefiningOp<OpT>();
  if (!op)
    return nullptr;
  if (matches(op.getLhs()))
    return op.getRhs();
  return matches(op.getRhs()) ? op.getLhs() : mlir::Value();
}

/// The factors of a product, through nested products that are used once.
/// Constant factors are multiplied together into `number`. In the order in
/// which they are written.
struct Product {
  double number = 1;
  llvm::SmallVector<mlir::Value, 4> factors;
};
Product factorise(mlir::Value value);

/// Returns x if `value` is the mean of x along its last axis, kept with size 1;
/// else null.
mlir::Value meanOfLastAxis(mlir::Value value);

/// Builds ops with the location and the module scope of the pattern's root.
class Builder {
public:
  Builder(mlir::PatternRewriter &rewriter, mlir::Operation *root)
      : rewriter(rewriter), root(root) {}

  /// Creates an op at the insertion point of the rewriter, with the root's
  /// location and scope.
  template <typename OpT, typename... Args> OpT create(Args &&...args) {
    auto op =
        OpT::create(rewriter, root->getLoc(), std::forward<Args>(args)...);
    for (llvm::StringRef name : nn::NNDialect::originAttributes())
      if (mlir::Attribute attribute = root->getAttr(name))
        op->setAttr(name, attribute);
    return op;
  }
  /// Both return the value itself if it has the shape already.
  mlir::Value reshape(mlir::Value value, llvm::ArrayRef<int64_t> shape);
  mlir::Value broadcast(mlir::Value value, llvm::ArrayRef<int64_t> shape);
  /// Statistics are f32 whatever the type of the values is.
  mlir::RankedTensorType statistics(llvm::ArrayRef<int64_t> shape) {
    return mlir::RankedTensorType::get(shape, rewriter.getF32Type());
  }

  /// Public, for the ops that nn's own helpers build.
  mlir::PatternRewriter &rewriter;
  mlir::Operation *root;
};

} // namespace fsdpc::passes::recognise

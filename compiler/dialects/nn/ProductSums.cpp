// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The gradient of a weight that many small products share, as in a recurrence
// that is unrolled over time. Each term would read and write the whole gradient
// for a few rows; one product over the rows of all terms writes it once.
#include "compiler/dialects/nn/ProductSums.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;

namespace fsdpc::nn {

// A product of more rows runs at full speed by itself, and of fewer terms the
// copies of the operands are not worth it.
static constexpr int64_t kMostRows = 256;
static constexpr size_t kLeastTerms = 4;
// A sum that adds one value again and again has terms without end.
static constexpr size_t kMostTerms = 1 << 16;

/// Returns true for a product Aᵀ·B of few rows.
static bool isTerm(MatmulOp product) {
  return product && product.getTransposeA() && !product.getTransposeB() &&
         !product.getAccumulator() && shapeOf(product.getLhs()).size() == 2 &&
         shapeOf(product.getRhs()).size() == 2 &&
         shapeOf(product.getLhs())[0] <= kMostRows;
}

// A sum may be long, so this is a loop.
LogicalResult ProductSums::collectTerms(Value sum,
                                        SmallVectorImpl<MatmulOp> &terms) {
  SmallVector<Value> left = {sum};
  while (!left.empty()) {
    Value value = left.pop_back_val();
    if (others.contains(value))
      return failure();
    if (auto add = value.getDefiningOp<AddOp>()) {
      left.append({add.getRhs(), add.getLhs()});
      continue;
    }
    auto product = value.getDefiningOp<MatmulOp>();
    if (!isTerm(product) ||
        (!terms.empty() &&
         product.getLhs().getType() != terms[0].getLhs().getType()) ||
        terms.size() == kMostTerms)
      return failure();
    terms.push_back(product);
  }
  return success();
}

/// Stacks the rows of an operand of all terms. The sweep goes backwards, so the
/// last term is the first step; in the order of steps, the stack is often one
/// that the backward has anyway.
static Value stackRows(OpBuilder &builder, MutableArrayRef<MatmulOp> terms,
                       function_ref<Value(MatmulOp)> operand) {
  SmallVector<Value> parts;
  for (MatmulOp term : llvm::reverse(terms))
    parts.push_back(operand(term));
  auto type = tensorType(parts[0]);
  int64_t rows = type.getShape()[0] * int64_t(parts.size());
  return ConcatOp::create(builder, terms.front().getLoc(),
                          type.clone({rows, type.getShape()[1]}), parts, 0);
}

Value ProductSums::merge(OpBuilder &builder, Value sum) {
  if (!sum.getDefiningOp<AddOp>())
    return sum;
  SmallVector<MatmulOp> terms;
  if (failed(collectTerms(sum, terms))) {
    others.insert(sum);
    return sum;
  }
  if (terms.size() < kLeastTerms)
    return sum;
  Value lhs =
      stackRows(builder, terms, [](MatmulOp term) { return term.getLhs(); });
  Value rhs =
      stackRows(builder, terms, [](MatmulOp term) { return term.getRhs(); });
  return MatmulOp::create(builder, sum.getLoc(), sum.getType(), lhs, rhs,
                          /*accumulator=*/Value(), /*transpose_a=*/true,
                          /*transpose_b=*/false);
}

} // namespace fsdpc::nn

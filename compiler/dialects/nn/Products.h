// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds what surrounds a product. Its sums start from an accumulator: either a
// full result, or one row that is added to every row (a bias). Passes and the
// runtime treat the two in different ways: memory of a full result becomes the
// result's, a row is only read. On GPUs a product may also compute GELU, its
// gradient, and sums of rows (nn.fused_matmul).
#pragma once

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"

namespace fsdpc::nn {

class GeluGradOp;
class GeluOp;
class MatmulOp;
class ReduceOp;

/// The number of elements of which rows of GELU's input must be multiples, so
/// that an epilogue can read or write them
/// (CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
constexpr int64_t kGeluRowMultiple = 8;

/// Returns true for a product of matrices, the operands 0 and 1.
bool isProduct(mlir::Operation *op);

/// Returns true if B is one matrix and the rows of A follow each other in
/// memory, so that the library computes all batches as one product. A
/// transposed A is K×M in each batch.
inline bool isOneProduct(mlir::Value lhs, mlir::Value rhs, bool transposeA) {
  auto rankOf = [](mlir::Value value) {
    return llvm::cast<mlir::RankedTensorType>(value.getType()).getRank();
  };
  return rankOf(rhs) == 2 && (!transposeA || rankOf(lhs) == 2);
}

/// `count` matrices of `rows` × `columns`.
struct Matrices {
  int64_t count, rows, columns;
};

/// Returns the results of a product (isProduct) as the library computes them,
/// with the rows of all batches in one matrix where it can.
Matrices resultsOf(mlir::Operation *product);

/// Returns the row that is added to each row of the result, or null.
mlir::Value biasOf(MatmulOp product);

/// Returns the accumulator whose memory the result overwrites, or null.
mlir::Value overwrittenBy(MatmulOp product);

/// Returns the vector that a broadcast repeats in each row of its result, or
/// null.
mlir::Value rowOf(mlir::Value value);

/// Returns true if the library's epilogue computes the same form of GELU on
/// rows of this length.
bool hasEpilogue(GeluOp gelu);
bool hasEpilogue(GeluGradOp grad);

/// Returns the product whose epilogue can compute GELU, because its sums, with
/// or without a bias, are GELU's input; else null. The answer is the same
/// before and after mixed precision and the fusion of biases.
MatmulOp endedProduct(GeluOp gelu);

/// Returns true if `reduce` adds the rows of its input.
bool sumsRows(ReduceOp reduce);

} // namespace fsdpc::nn

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small builders and matchers over nn ops, shared by folders, adjoints,
// decompositions and passes.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

#include <optional>

namespace fsdpc::nn {

class ConcatOp;
class SliceOp;
enum class ReduceKind : uint32_t;

/// Returns the ranked tensor type of a value; every value of the dialect has
/// one.
inline mlir::RankedTensorType tensorType(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}

/// Returns true for the 16-bit float types, bf16 and f16. Ops on them compute
/// in f32 and round each result.
inline bool isHalf(mlir::Type element) {
  return element.isBF16() || element.isF16();
}

/// Returns the shape. The reference stays valid with the MLIR context, since
/// types are uniqued there, even if the value is erased.
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) {
  return tensorType(value).getShape();
}

/// Returns `value` as an attribute of a float or integer element type. Integers
/// drop the fraction and wrap to the type's width.
mlir::TypedAttr scalarAttr(mlir::Type element, double value);

/// Builds a constant that has `value` in every element. `type` is a ranked
/// tensor.
mlir::Value splat(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type,
                  double value);

/// Returns the number that every element of `value` has, if it is a constant,
/// possibly behind broadcasts, reshapes and transposes; else nullopt.
std::optional<double> matchSplat(mlir::Value value);

/// Build a reshape, broadcast or cast, or return `value` if it has that form
/// already.
mlir::Value reshapeTo(mlir::OpBuilder &builder, mlir::Location loc,
                      mlir::Value value, llvm::ArrayRef<int64_t> shape);
mlir::Value broadcastTo(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::Value value, llvm::ArrayRef<int64_t> shape);
mlir::Value castTo(mlir::OpBuilder &builder, mlir::Location loc,
                   mlir::Value value, mlir::Type element);

/// Builds the matrix product lhs · rhs, which starts from `accumulator` unless
/// that is null.
mlir::Value multiply(mlir::OpBuilder &builder, mlir::Location loc,
                     mlir::RankedTensorType type, mlir::Value lhs,
                     mlir::Value rhs, bool transposeLhs, bool transposeRhs,
                     mlir::Value accumulator = {});

/// Builds a reduction along `axes`, which are kept with size 1. Returns `value`
/// if there are no axes.
mlir::Value reduceAlong(mlir::OpBuilder &builder, mlir::Location loc,
                        ReduceKind kind, mlir::Value value,
                        llvm::ArrayRef<int64_t> axes);

/// Builds the adjoint of a broadcast from `shape`: the sum over the dimensions
/// that were repeated.
mlir::Value sumTo(mlir::OpBuilder &builder, mlir::Location loc,
                  mlir::Value value, llvm::ArrayRef<int64_t> shape);

/// Returns true if `from` broadcasts to `to` by NumPy's rule.
bool broadcastsTo(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to);

/// Returns the offset of a slice in its operand, in elements, if the slice is
/// contiguous there; else nullopt. Ignores `nn.strided`: see sliceOffset in
/// Strided.h.
std::optional<int64_t> contiguousOffset(SliceOp slice);
/// Returns true if each operand of a concat is contiguous in its result, so
/// that a producer can write its piece in place.
bool joinsPieces(ConcatOp concat);
/// Returns true if the op only names a part of its operand's memory. This holds
/// in functions whose kernels are outlined, where all remaining slices are
/// contiguous.
bool isView(mlir::Operation *op);

} // namespace fsdpc::nn

// Small builders and matchers over nn ops, shared by folders, adjoints,
// decompositions and passes.
#pragma once

#include "compiler/dialects/nn/NNDialect.h"

#include <optional>

namespace fsdpc::nn {

/// The ranked tensor type of a value; every value of the dialect has one.
inline mlir::RankedTensorType tensorType(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}

inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) {
  return tensorType(value).getShape();
}

/// `value` as an attribute of a float or integer element type.
mlir::TypedAttr scalarAttr(mlir::Type element, double value);

/// A constant of one value in every element; `type` is a ranked tensor.
mlir::Value splat(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type,
                  double value);

/// The value that every element of `value` has, where constants seen through
/// broadcasts, reshapes and transposes tell.
std::optional<double> matchSplat(mlir::Value value);

/// Reshape, broadcast and cast that do nothing where nothing is to be done.
mlir::Value reshapeTo(mlir::OpBuilder &builder, mlir::Location loc,
                      mlir::Value value, llvm::ArrayRef<int64_t> shape);
mlir::Value broadcastTo(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::Value value, llvm::ArrayRef<int64_t> shape);
mlir::Value castTo(mlir::OpBuilder &builder, mlir::Location loc,
                   mlir::Value value, mlir::Type element);

/// Reduction along `axes`, which stay with size 1; `value` where there is none.
mlir::Value reduceAlong(mlir::OpBuilder &builder, mlir::Location loc,
                        ReduceKind kind, mlir::Value value,
                        llvm::ArrayRef<int64_t> axes);

/// Adjoint of a broadcast from `shape`: the sum over repeated dimensions.
mlir::Value sumTo(mlir::OpBuilder &builder, mlir::Location loc,
                  mlir::Value value, llvm::ArrayRef<int64_t> shape);

/// Whether `from` broadcasts to `to` by NumPy's rule.
bool broadcastsTo(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to);

/// Where a slice begins in its operand, in elements, if it is one piece of it.
std::optional<int64_t> contiguousOffset(SliceOp slice);
/// Whether each operand of a concat is one piece of its result.
bool joinsPieces(ConcatOp concat);
/// Whether an op of a function whose kernels are outlined only names a piece of
/// its operand's memory.
inline bool isView(mlir::Operation *op) {
  return llvm::isa<ReshapeOp, SliceOp>(op);
}

} // namespace fsdpc::nn

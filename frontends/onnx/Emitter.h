// Builds nn ops at the current node's location, folding what is constant.
#pragma once

#include "compiler/dialects/nn/Build.h"

#include <map>

namespace fsdpc::frontend {

using Shape = llvm::SmallVector<int64_t, 6>;

using nn::matchSplat;
using nn::shapeOf;
using nn::tensorType;

inline mlir::Type elementOf(mlir::Value value) {
  return tensorType(value).getElementType();
}
inline int64_t rankOf(mlir::Value value) { return tensorType(value).getRank(); }

// The number of elements, or nothing where a dimension is negative or the
// number is beyond what any tensor here may have (2^40).
std::optional<int64_t> countElements(llvm::ArrayRef<int64_t> shape);

// NumPy's rule; nothing where the shapes do not broadcast.
std::optional<Shape> broadcastShapes(llvm::ArrayRef<int64_t> a,
                                     llvm::ArrayRef<int64_t> b);

class Emitter {
public:
  explicit Emitter(mlir::MLIRContext *context)
      : builder(context), loc(builder.getUnknownLoc()) {}

  mlir::OpBuilder builder;
  mlir::Location loc;
  mlir::ArrayAttr scope, classes; // of the node; null where it has none

  // Builds an op that is not folded (several results, or side effects).
  template <typename OpT, typename... Args> OpT op(Args &&...args) {
    auto created = OpT::create(builder, loc, std::forward<Args>(args)...);
    annotate(created);
    return created;
  }
  // Builds an op of one result and folds it where its operands are constants.
  template <typename OpT, typename... Args> mlir::Value make(Args &&...args) {
    return fold(op<OpT>(std::forward<Args>(args)...));
  }

  mlir::Value constant(mlir::DenseElementsAttr value);
  mlir::Value scalar(mlir::Type element, double value);
  mlir::Value splat(mlir::RankedTensorType type, double value);
  mlir::Value integers(llvm::ArrayRef<int64_t> values);
  // A scalar in the shape and element type of `like`.
  mlir::Value like(mlir::Value like, double value);

  // Callers have checked that the shapes fit.
  mlir::Value broadcast(mlir::Value input, llvm::ArrayRef<int64_t> shape);
  mlir::Value reshape(mlir::Value input, llvm::ArrayRef<int64_t> shape);
  mlir::Value transpose(mlir::Value input, llvm::ArrayRef<int64_t> permutation);
  mlir::Value cast(mlir::Value input, mlir::Type element);
  mlir::Value slice(mlir::Value input, llvm::ArrayRef<int64_t> offsets,
                    llvm::ArrayRef<int64_t> strides,
                    llvm::ArrayRef<int64_t> shape);
  // Elements [begin, begin + size) of one axis.
  mlir::Value slice(mlir::Value input, int64_t axis, int64_t begin,
                    int64_t size);
  mlir::Value concat(mlir::ValueRange inputs, int64_t axis);
  mlir::Value iota(llvm::ArrayRef<int64_t> shape, int64_t axis);
  mlir::Value reduce(nn::ReduceKind kind, mlir::Value input,
                     llvm::ArrayRef<int64_t> axes); // dimensions kept as 1
  mlir::Value mean(mlir::Value input, llvm::ArrayRef<int64_t> axes);
  mlir::Value compare(nn::Predicate predicate, mlir::Value lhs,
                      mlir::Value rhs);
  mlir::Value select(mlir::Value condition, mlir::Value onTrue,
                     mlir::Value onFalse);

  template <typename OpT> mlir::Value unary(mlir::Value input) {
    return make<OpT>(input.getType(), input);
  }
  template <typename OpT> mlir::Value binary(mlir::Value lhs, mlir::Value rhs) {
    return make<OpT>(lhs.getType(), lhs, rhs);
  }
  template <typename OpT> mlir::Value binary(mlir::Value lhs, double rhs) {
    return binary<OpT>(lhs, like(lhs, rhs));
  }

private:
  void annotate(mlir::Operation *op);
  mlir::Value fold(mlir::Operation *op);
  mlir::DenseElementsAttr
  foldOnce(mlir::Operation *op,
           llvm::ArrayRef<mlir::DenseElementsAttr> operands);

  // Layers build the same masks: an op on the same constants is evaluated once.
  // By op, its attributes, type and operands, all of them unique in the
  // context.
  std::map<llvm::SmallVector<const void *, 6>, mlir::DenseElementsAttr> folded;
};

// The value of a constant, also where it is broadcast (then materialised, up to
// the folder's cap); null where it is none.
mlir::DenseElementsAttr constantOf(mlir::Value value);
// A constant's elements as integers, up to `limit` of them.
std::optional<llvm::SmallVector<int64_t>> integersOf(mlir::Value value,
                                                     int64_t limit = 65536);

} // namespace fsdpc::frontend

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds nn ops at the location of the current node, and folds them as they are
// built. Exporters compute shapes, masks and positions with ordinary nodes, so
// that handlers of Reshape or Slice depend on constants that earlier nodes have
// computed: folding cannot wait for a later pass.
#pragma once

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/NNAttributes.h"
#include "frontends/onnx/Budgets.h"

#include <map>

namespace fsdpc::nn {
enum class Predicate : uint32_t;
enum class ReduceKind : uint32_t;
} // namespace fsdpc::nn

namespace fsdpc::frontend {

using Shape = llvm::SmallVector<int64_t, 6>;

/// Queries of nn that handlers use without its prefix.
using nn::matchSplat;
using nn::shapeOf;
using nn::tensorType;

inline mlir::Type elementOf(mlir::Value value) {
  return tensorType(value).getElementType();
}
inline int64_t rankOf(mlir::Value value) { return tensorType(value).getRank(); }

/// Returns the number of elements, or nullopt if a dimension is negative or the
/// shape exceeds what any tensor here may have: 2^40 elements, kHighestRank
/// dimensions.
std::optional<int64_t> countElements(llvm::ArrayRef<int64_t> shape);

/// Returns the shape to which both broadcast by NumPy's rule, or nullopt if
/// they do not.
std::optional<Shape> broadcastShapes(llvm::ArrayRef<int64_t> a,
                                     llvm::ArrayRef<int64_t> b);

/// The builder of the import. `loc` and `modules` are set by the caller for
/// each node and annotate every op that is built.
class Emitter {
public:
  Emitter(mlir::MLIRContext *context, Budgets &budgets)
      : builder(context), loc(builder.getUnknownLoc()), budgets(budgets) {}

  /// Handlers insert at its insertion point, the end of the function.
  mlir::OpBuilder builder;
  mlir::Location loc;
  nn::ModulesAttr modules; ///< of the node; null if it has none

  /// The budget that has stopped folding, if one has.
  std::optional<Cost> unfolded;
  /// True if the ops that were built exceed their budget.
  bool hasTooManyOps = false;

  /// Charges constants that a handler computes itself. Returns false, and
  /// charges nothing, if the budget does not allow it.
  bool spend(Cost cost, int64_t amount) { return budgets.spend(cost, amount); }

  /// Builds an op that is not folded: one with several results or side effects.
  template <typename OpT, typename... Args> OpT op(Args &&...args) {
    auto created = OpT::create(builder, loc, std::forward<Args>(args)...);
    annotate(created);
    return created;
  }
  /// Builds an op with one result, and folds it if its operands are constants.
  template <typename OpT, typename... Args> mlir::Value make(Args &&...args) {
    return fold(op<OpT>(std::forward<Args>(args)...));
  }

  mlir::Value constant(mlir::DenseElementsAttr value);
  /// Constants of rank 0, and of a whole type, which is a broadcast scalar.
  /// `value` is converted to the element type.
  mlir::Value scalar(mlir::Type element, double value);
  mlir::Value splat(mlir::RankedTensorType type, double value);
  /// A vector of i64.
  mlir::Value integers(llvm::ArrayRef<int64_t> values);
  /// A constant with the shape and element type of `like`.
  mlir::Value like(mlir::Value like, double value);

  /// The caller has checked that the shapes fit. Ops that change nothing return
  /// their input.
  mlir::Value broadcast(mlir::Value input, llvm::ArrayRef<int64_t> shape);
  mlir::Value reshape(mlir::Value input, llvm::ArrayRef<int64_t> shape);
  mlir::Value transpose(mlir::Value input, llvm::ArrayRef<int64_t> permutation);
  mlir::Value cast(mlir::Value input, mlir::Type element);
  mlir::Value slice(mlir::Value input, llvm::ArrayRef<int64_t> offsets,
                    llvm::ArrayRef<int64_t> strides,
                    llvm::ArrayRef<int64_t> shape);
  /// Takes the elements [begin, begin + size) of one axis.
  mlir::Value slice(mlir::Value input, int64_t axis, int64_t begin,
                    int64_t size);
  mlir::Value concat(mlir::ValueRange inputs, int64_t axis);
  /// Positions along `axis` as i64, broadcast along the other dimensions.
  mlir::Value iota(llvm::ArrayRef<int64_t> shape, int64_t axis);
  /// Reduced dimensions stay as 1, so a broadcast undoes the change of shape.
  mlir::Value reduce(nn::ReduceKind kind, mlir::Value input,
                     llvm::ArrayRef<int64_t> axes); ///< dimensions kept as 1
  mlir::Value mean(mlir::Value input, llvm::ArrayRef<int64_t> axes);
  /// The product of batches of matrices. The caller knows its shape; batch
  /// dimensions broadcast.
  mlir::Value matmul(mlir::Value lhs, mlir::Value rhs,
                     llvm::ArrayRef<int64_t> shape, bool transposeLhs = false,
                     bool transposeRhs = false);
  /// Operands of these must have one shape already; nothing broadcasts here.
  mlir::Value compare(nn::Predicate predicate, mlir::Value lhs,
                      mlir::Value rhs);
  mlir::Value select(mlir::Value condition, mlir::Value onTrue,
                     mlir::Value onFalse);

  /// The result has the type of the operand, or of the left one.
  template <typename OpT> mlir::Value unary(mlir::Value input) {
    return make<OpT>(input.getType(), input);
  }
  template <typename OpT> mlir::Value binary(mlir::Value lhs, mlir::Value rhs) {
    return make<OpT>(lhs.getType(), lhs, rhs);
  }
  /// The same with a number in place of the right operand.
  template <typename OpT> mlir::Value binary(mlir::Value lhs, double rhs) {
    return binary<OpT>(lhs, like(lhs, rhs));
  }

private:
  void annotate(mlir::Operation *op);
  /// Replaces the op with a constant if it folds, else returns its result.
  mlir::Value fold(mlir::Operation *op);
  /// Spends steps and bytes on a fold. Returns false if it is too expensive.
  bool allows(int64_t steps, mlir::RankedTensorType made);
  /// Evaluates the op on constants, or returns the remembered result.
  mlir::DenseElementsAttr
  foldOnce(mlir::Operation *op,
           llvm::ArrayRef<mlir::DenseElementsAttr> operands);

  /// Broadcasts a constant to `type`, or returns the remembered result. Returns
  /// null if the result is too large.
  mlir::DenseElementsAttr expandOnce(mlir::DenseElementsAttr value,
                                     mlir::RankedTensorType type);

  /// Every layer builds the same masks, so an op on the same constants is
  /// evaluated once. Keys are the op's name, attributes, result type and
  /// operands, all of them unique in the context.
  std::map<llvm::SmallVector<const void *, 6>, mlir::DenseElementsAttr> folded;
  llvm::DenseMap<std::pair<mlir::Attribute, mlir::Type>,
                 mlir::DenseElementsAttr>
      expanded;
  Budgets &budgets;
};

/// Returns the value of a constant, expanded if it is broadcast. Returns null
/// if the value is not constant or the result exceeds kFoldedBytes.
mlir::DenseElementsAttr constantOf(mlir::Value value);
/// Returns the elements of an integer constant, or nullopt if the value is not
/// constant or has more than `limit` elements.
constexpr int64_t kMostIntegers = 65536;
std::optional<llvm::SmallVector<int64_t>>
integersOf(mlir::Value value, int64_t limit = kMostIntegers);

} // namespace fsdpc::frontend

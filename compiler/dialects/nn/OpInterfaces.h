// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The types in which ops answer the questions of NNInterfaces.td: how an op
// fuses into kernels, which iteration domain it has, where the elements come
// from that it moves, and in what it is linear. Passes and emitters ask these
// interfaces and name no op class.
#pragma once

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/Value.h"

#include <optional>

namespace fsdpc::nn {

/// The ways in which `outline-kernels` may place an op.
enum class FusionKind {
  Boundary,  ///< stays outside kernels: sources, sinks, views, library calls
  Map,       ///< computes an element from the operands' elements at its index
  Index,     ///< moves elements: transpose, pad, embedding, rotary
  Movable,   ///< moves elements, and is repeated in each kernel that reads it
  Reduction, ///< reduces along axes; composites that do so once or more
  Alone      ///< is a kernel of its own: concat, embedding_grad
};

/// The shape that an op iterates over and the axes that it reduces.
struct Domain {
  llvm::SmallVector<int64_t> shape;
  llvm::SmallVector<int64_t> axes; ///< ascending; empty for maps

  /// The domain of a map over all elements of `value`, and of an op that
  /// reduces `axes` of it. The axes may come in any order.
  static Domain of(mlir::Value value);
  static Domain of(mlir::Value value, llvm::ArrayRef<int64_t> axes);
  /// The domain of an op that reduces each row: the last axis of `value`.
  static Domain rowsOf(mlir::Value value);
  /// The domain of an op that reduces all axes of `value` but one.
  static Domain allBut(int64_t kept, mlir::Value value);

  bool reduces() const { return !axes.empty(); }
  /// Returns true if rows of the innermost axis are reduced, so that the kernel
  /// can write values of the whole domain too.
  bool reducesInnermost() const {
    return reduces() && axes.back() == static_cast<int64_t>(shape.size()) - 1;
  }
  /// Returns true if the last axis alone is reduced.
  bool reducesRows() const { return axes.size() == 1 && reducesInnermost(); }
  /// Returns true if a tensor of this shape has one element per reduction: the
  /// domain with its reduced axes of size 1, or without them.
  bool isReducedShape(llvm::ArrayRef<int64_t> other) const;
};

/// Holds if low <= expr <= high; `expr` is over the index of the result, so
/// `low` and `high` are inclusive bounds in elements.
struct IndexCondition {
  mlir::AffineExpr expr;
  int64_t low, high;
};

/// An index that is read from an operand of integers.
struct DynamicIndex {
  /// The number of the operand among all operands of the op.
  unsigned operand;
  mlir::AffineMap map; ///< from the result's index to the operand's
  int64_t size;        ///< the index lies in [0, size)
  bool wraps;          ///< negative values count from the end
};

/// The operand and index from which an op takes an element of its result.
struct ElementSource {
  unsigned operand;
  /// Maps the result's index to the operand's; symbol 0 is `dynamic`. A null
  /// map keeps the row-major position: reshapes.
  mlir::AffineMap map;
  /// The source counts only if all of them hold. Where one does not, the map
  /// may leave the operand.
  llvm::SmallVector<IndexCondition, 2> conditions;
  std::optional<DynamicIndex> dynamic;
};

/// How the results of an op depend on one of its operands.
enum class Linearity {
  None,  ///< not linearly
  Term,  ///< linear in all its operands of this kind together
  Factor ///< linear in it as long as the other factors are fixed
};

inline Linearity termIf(bool isLinear) {
  return isLinear ? Linearity::Term : Linearity::None;
}
/// Returns true if the number is that of an operand, or of one of several.
inline bool isAmong(unsigned number, mlir::OpOperand &operand) {
  return operand.getOperandNumber() == number;
}
bool isAmong(unsigned number, mlir::MutableOperandRange operands);
/// Returns the linearity of an op that moves elements from `sources`.
Linearity linearityIn(llvm::ArrayRef<ElementSource> sources, unsigned operand);

/// Traits without methods, which NNInterfaces.td gives to ops.
/// InLossTail: the op may stay f32 on the way from the last product to the
/// loss.
template <typename OpTy>
struct InLossTail : mlir::OpTrait::TraitBase<OpTy, InLossTail> {};
/// The backward may compute the op again instead of keeping its result: it is
/// one pass over memory, with the same bits each time.
template <typename OpTy>
struct CheapToRepeat : mlir::OpTrait::TraitBase<OpTy, CheapToRepeat> {};
/// Each element of the result takes one random word. A call of Philox yields
/// four words.
template <typename OpTy>
struct DrawsRandom : mlir::OpTrait::TraitBase<OpTy, DrawsRandom> {};
/// The result is the operand, in another type at most.
template <typename OpTy>
struct SameValue : mlir::OpTrait::TraitBase<OpTy, SameValue> {};

} // namespace fsdpc::nn

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The index arithmetic of kernels: sums of loop variables and of their
// quotients and remainders by constants, simplified with the ranges of the
// variables, so that reshapes between the ops of a kernel cancel. After XLA's
// indexing maps.
#pragma once

#include "mlir/IR/Value.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <vector>

namespace fsdpc::analysis {

/// constant + Σ coefficient · atom. Terms are sorted by atom, and no
/// coefficient is 0.
struct IndexExpr {
  llvm::SmallVector<std::pair<int, int64_t>, 4> terms; ///< (atom, coefficient)
  int64_t constant = 0;

  IndexExpr() = default;
  IndexExpr(int64_t constant) : constant(constant) {}

  bool isConstant() const { return terms.empty(); }
  bool operator==(const IndexExpr &other) const {
    return constant == other.constant && terms == other.terms;
  }
  bool operator<(const IndexExpr &other) const;
};

using Index = llvm::SmallVector<IndexExpr, 4>;

struct IndexRange {
  int64_t low, high; ///< both inclusive
};

/// An indivisible part of an expression. Two atoms of one space with equal
/// contents have the same number, except for variables.
struct Atom {
  enum Kind {
    Variable, ///< of a loop
    Div,      ///< floor(inner / divisor)
    Mod,      ///< inner - divisor · floor(inner / divisor)
    Clamp,    ///< inner clamped to `range`
    Dynamic   ///< element `index` of an integer tensor, clamped to `range`;
              ///< negative values count from the end if `wraps` is set
  };
  Kind kind;
  IndexExpr inner;
  int64_t divisor = 1;
  IndexRange range = {0, 0};
  int depth = 0;         ///< of the innermost loop that it depends on
  bool usesLane = false; ///< depends on the lane variable
  mlir::Value tensor;
  Index index;
  bool wraps = false;
};

/// The atoms of one kernel, and the arithmetic on them. Variables belong to
/// loops; the lane variable is the one whose values are spread over the lanes
/// of a vector.
class IndexSpace {
public:
  /// Returns a new loop variable in [0, extent), or the constant 0 if the
  /// extent is 1.
  IndexExpr variable(int depth, int64_t extent, bool isLane = false);
  /// Narrows a variable's range while one part of its loop is planned or
  /// emitted. The caller restores the range.
  void setRange(const IndexExpr &variable, IndexRange range);

  /// Arithmetic. Divisors are positive, and division rounds towards -∞.
  /// Operations may add atoms, which invalidates references returned by atom().
  IndexExpr add(const IndexExpr &a, const IndexExpr &b);
  IndexExpr scale(const IndexExpr &a, int64_t factor);
  IndexExpr floorDiv(const IndexExpr &a, int64_t divisor);
  IndexExpr mod(const IndexExpr &a, int64_t divisor);
  IndexExpr clamp(const IndexExpr &a, IndexRange range);
  /// An element of an integer tensor as an index in [0, size).
  IndexExpr dynamic(mlir::Value tensor, const Index &index, int64_t size,
                    bool wraps);

  /// Converts between the index of a tensor's element and its row-major
  /// position.
  IndexExpr linearize(llvm::ArrayRef<IndexExpr> index,
                      llvm::ArrayRef<int64_t> shape);
  Index delinearize(IndexExpr linear, llvm::ArrayRef<int64_t> shape);

  /// Returns bounds of the expression's value.
  IndexRange range(const IndexExpr &a) const;
  /// Returns the depth of the innermost loop that the expression depends on.
  int depth(const IndexExpr &a) const;
  bool usesLane(const IndexExpr &a) const;
  /// Returns the difference from one lane to the next, or nullopt if it varies.
  std::optional<int64_t> laneStride(const IndexExpr &a) const;
  /// Returns the number of lanes in a run, if the lanes of each run read one
  /// element and the next run reads the next one: codes of which a byte has
  /// several. Nullopt for other expressions. The first lane is a multiple of
  /// `lanes`, and so of the run.
  std::optional<int64_t> laneRun(const IndexExpr &a, int64_t lanes) const;
  /// Returns the largest power of two that divides an address, in elements,
  /// given that the lane variable is a multiple of `lanes`. Returns 0 for the
  /// constant 0, which every number divides.
  int64_t alignment(const IndexExpr &address, int64_t lanes) const;
  /// Adds to `cuts` the extents at which the lanes' loop could be split so that
  /// divisions of the lane variable disappear.
  void collectCuts(const IndexExpr &a,
                   llvm::SmallVectorImpl<int64_t> &cuts) const;

  const Atom &atom(int id) const { return atoms[id]; }

private:
  /// Returns the number of an equal atom, or adds the atom.
  int intern(Atom atom);
  IndexExpr single(int id, int64_t coefficient = 1);
  /// Replaces a matching pair of quotient and remainder with what was divided.
  void recombine(IndexExpr &a);
  /// Splits a into divisor · quotient + rest, where no coefficient of `rest` is
  /// a multiple of the divisor.
  void split(const IndexExpr &a, int64_t divisor, IndexExpr &quotient,
             IndexExpr &rest) const;
  /// Returns floor(rest / divisor) and the remainder, for a `rest` as above.
  std::pair<IndexExpr, IndexExpr> divide(const IndexExpr &rest,
                                         int64_t divisor);

  std::vector<Atom> atoms;
};

} // namespace fsdpc::analysis

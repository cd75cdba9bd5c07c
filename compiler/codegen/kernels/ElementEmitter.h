// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Emits single elements of a kernel's values; the templates emit the loops
// around them. An element of a root is computed by recursion through the body
// at an index (after XLA's elemental IR emitter), so nothing is stored in
// between, and each subexpression is built once per loop body. Code is placed
// in the outermost loop on whose variable it depends, which hoists invariants
// as a side effect.
#pragma once

#include "compiler/analysis/kernels/KernelPlan.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"

#include <map>

namespace fsdpc::nn {
class ConstantOp;
class DropoutOp;
class IotaOp;
class ReduceOp;
class TakeAlongAxisOp;
class UniformOp;
} // namespace fsdpc::nn

namespace fsdpc::codegen::kernels {

using analysis::Atom;
using analysis::Condition;
using analysis::Index;
using analysis::IndexExpr;
using analysis::IndexRange;
using analysis::IndexSpace;
using analysis::kColumnBlock;
using analysis::KernelPlan;
using analysis::movesElements;
using analysis::Root;
using analysis::Source;
using analysis::sourcesOf;
using analysis::Stage;

/// The properties of the processor on which the emitted code depends.
struct VectorTarget {
  int64_t lanes = 8;       ///< f32 values in a vector register
  bool roundsBf16 = false; ///< has an instruction for f32 to bf16
  bool gathers = true;     ///< LLVM can select a load of scattered lanes
};

/// The value of an element at the current lanes: a vector if the lanes differ,
/// else a scalar. `depth` is the innermost loop that it depends on: 0 for the
/// row, 1 for the outer loop, 2 for the lanes' loop.
struct Lanes {
  mlir::Value value;
  int depth = 0;
};

/// Base of the emitters for the host (LoopEmitter) and for grids of threads
/// (GridEmitter). It does not own the plan, which emission extends with new
/// atoms.
class ElementEmitter {
protected:
  ElementEmitter(mlir::OpBuilder &builder, mlir::func::FuncOp kernel,
                 KernelPlan &plan, const VectorTarget &target)
      : builder(builder), loc(builder.getUnknownLoc()), kernel(kernel),
        plan(plan), space(plan.space), target(target) {}

  using Key = std::pair<void *, std::vector<IndexExpr>>;
  struct Scope {
    mlir::Block *block = nullptr;
    mlir::Operation *anchor = nullptr; ///< the loop being built in this scope
  };

  /// Builds an scf.for at `depth` over `variable`. `body` gets the carried
  /// values and returns their next values; loop() returns the final ones.
  llvm::SmallVector<mlir::Value>
  loop(int depth, const IndexExpr &variable, mlir::Value low, mlir::Value high,
       int64_t step, mlir::ValueRange carried,
       llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::ValueRange)>
           body);
  /// Sets the insertion point to the end of the scope at `depth`, or in front
  /// of the loop that is being built in it.
  void insertAt(int depth);
  /// Returns the innermost open scope outside `depth`.
  int enclosing(int depth) const;
  /// Sets a variable's value at the first lane. Does nothing for a variable of
  /// extent 1, which is the constant 0.
  void setVariable(const IndexExpr &variable, mlir::Value value);
  /// Forgets the known values that depend on loops at `depth` or deeper. Their
  /// code does not dominate what is built after those loops.
  void forget(int depth);
  /// Build code inside a block of the loop at depth 1, or under a condition
  /// there. Values that it makes do not dominate what follows, so they are
  /// forgotten.
  void within(mlir::Block *block, llvm::function_ref<void()> body);
  void when(mlir::Value condition, llvm::function_ref<void()> body);
  /// Forgets the known values that depend on the lane. Call it between the
  /// parts of a loop that is cut, because indices simplify differently in each
  /// part.
  void forgetLanes();

  // ---- reductions (EmitReduction.cpp) ----
  // The value that a running value starts with: 0, or the least or largest
  // number.
  mlir::Value neutral(nn::ReduceOp op, mlir::Type type);
  mlir::Value combine(nn::ReduceOp op, mlir::Value a, mlir::Value b);
  /// Reduces the lanes of a running value to a scalar.
  mlir::Value foldLanes(nn::ReduceOp op, mlir::Value vector);
  /// Rounds the finished value to the type of the op's result.
  mlir::Value roundResult(nn::ReduceOp op, mlir::Value sum);
  /// Reduces the rows first, first + step, … of a column stage, for one vector
  /// of columns; a null `first` is row 0. Returns a value per reduction of the
  /// stage (EmitColumns.cpp).
  llvm::SmallVector<mlir::Value> sumRows(Stage &stage, mlir::Value first,
                                         int64_t step);
  /// Finishes the reductions and stores the stage's outputs for the same
  /// columns.
  void storeColumns(Stage &stage, mlir::ValueRange sums);

  // ---- elements (EmitElement.cpp) ----
  // Returns element `index` of `value`; builds it at most once per scope.
  Lanes element(mlir::Value value, const Index &index);
  /// Builds the element, without a look at the known ones.
  Lanes build(mlir::Value value, const Index &index);
  Lanes elementwise(mlir::Operation *op, const Index &index);
  Lanes moved(mlir::Operation *op, const Index &index);
  Lanes iota(nn::IotaOp op, const Index &index);
  Lanes takeAlongAxis(nn::TakeAlongAxisOp op, const Index &index);
  Lanes whereInside(const Lanes &value, mlir::Type element, mlir::Value ids,
                    const Index &at, int64_t low, int64_t count);
  Lanes constant(nn::ConstantOp op);
  Lanes select(const Lanes &condition, Lanes onTrue, Lanes onFalse);
  /// Returns an i1 that is true where the condition holds.
  Lanes holds(const Condition &condition);

  // ---- random elements (EmitRandom.cpp) ----
  Lanes dropout(nn::DropoutOp op, const Index &index);
  Lanes uniform(nn::UniformOp op, const Index &index);
  mlir::Value randomWord(mlir::Value tensor, uint64_t ordinal,
                         const IndexExpr &position, int depth);
  bool coversGroups(const IndexExpr &position);

  /// Loads the element at a linear address. The load is not hoisted out of the
  /// loop at `depth`: pass it for memory that the loop changes.
  Lanes load(mlir::Value buffer, mlir::Type element, const IndexExpr &address,
             int depth = 0);
  void store(mlir::Value buffer, mlir::Type element, const IndexExpr &address,
             mlir::Value value);
  mlir::Value pointer(mlir::Value buffer, mlir::Type storage,
                      mlir::Value position);
  /// Returns the address of one lane: from the first lane's position and the
  /// stride, or, without a stride, from the vector of all positions.
  mlir::Value lanePlace(mlir::Value position, std::optional<int64_t> stride,
                        int64_t lane);
  /// Returns the lanes of a run, if lanes read the address in runs
  /// (IndexSpace::laneRun).
  std::optional<int64_t> runOf(const IndexExpr &address) const;
  /// Returns a number of bytes that divides the address of the first lane.
  unsigned alignmentOf(mlir::Value buffer, mlir::Type storage,
                       const IndexExpr &address) const;
  /// Converts from the type in memory to the type in which code computes, and
  /// back.
  mlir::Value widen(mlir::Value stored, mlir::Type element);
  mlir::Value narrow(mlir::Value value, mlir::Type element);
  /// Rounds f32 lanes to a 16-bit type, kept as f32. Lanes of other types are
  /// returned as they are.
  mlir::Value roundTo(mlir::Type element, mlir::Value value);
  /// Emits an index at the first lane (a scalar), and at every lane (a vector).
  mlir::Value scalarIndex(const IndexExpr &expr);
  mlir::Value vectorIndex(const IndexExpr &expr);
  mlir::Value atomValue(const Atom &atom, int id, bool vector);
  mlir::Value toI64(mlir::Value value, mlir::Type element);
  /// Computes the root at the current lanes and stores it in its result or kept
  /// row.
  void storeOutput(const Root &root);
  /// Adds the current row to the running sums of its block of rows, in memory.
  void addToOutput(const Root &root);

  // ---- small builders ----
  template <typename OpTy, typename... Args> mlir::Value make(Args &&...args) {
    return OpTy::create(builder, loc, std::forward<Args>(args)...);
  }
  mlir::Value i64(int64_t value);
  mlir::Value splatLike(mlir::Type type, double value);
  /// Broadcasts a scalar to the current width; a no-op if the width is 1.
  mlir::Value spread(mlir::Value scalar);
  /// The type of a value of `element`, as a vector of the current width or not.
  mlir::Type lanesOf(mlir::Type element, bool vector) const;
  /// Outputs past the kernel's results are kept rows (KernelPlan::keptRows).
  bool isResult(int output) {
    return output < static_cast<int>(kernel.getNumResults());
  }
  bool vectorizes(const IndexExpr &expr) const {
    return width > 1 && space.usesLane(expr);
  }

  mlir::OpBuilder &builder;
  mlir::Location loc;
  mlir::func::FuncOp kernel;
  KernelPlan &plan;
  IndexSpace &space;
  VectorTarget target;

  int64_t width = 1; ///< lanes of the loop that is being built
  /// The first lane of each of its steps is a multiple of the width.
  bool lanesAligned = false;
  Scope scopes[3];
  llvm::SmallVector<mlir::Value> buffers; ///< operands, results, kept rows
  /// Buffers with a known alignment larger than their element's, in bytes.
  llvm::DenseMap<mlir::Value, int64_t> alignments;
  llvm::DenseMap<int, mlir::Value> variables; ///< by atom, at the first lane
  std::map<Key, Lanes> known; ///< elements that are built and still in scope
  llvm::DenseMap<mlir::Value, Lanes>
      reduced; ///< finished reductions of this row
  llvm::DenseMap<mlir::Value, int> storedRows; ///< outputs of earlier stages
  llvm::DenseMap<mlir::Value, mlir::Value> roundedBits; ///< f32 → its 16 bits
  mlir::Value isFirstRow; ///< i1: the block's sums have not begun; may be null
};

/// Reduces a vector to a scalar: combines its halves until one lane is left.
/// The order is fixed, so the bits do not depend on how LLVM would reduce it.
mlir::Value
foldLanes(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value vector,
          llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);

/// Returns the type in which code computes with a tensor's elements: f32 for
/// the 16-bit floats, and signless integers.
mlir::Type scalarType(mlir::Type element);
/// Returns the type of an element in memory: i16 for 16-bit floats, i8 for
/// i1.
mlir::Type storageType(mlir::Type element);

} // namespace fsdpc::codegen::kernels

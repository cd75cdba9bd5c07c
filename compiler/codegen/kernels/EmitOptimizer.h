// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Applies the scalar program of an optimizer to the elements of a shard, or
// sums its results over them. The host's loops (EmitOptimizer.cpp) and GPUs'
// grids (simt/GridOptimizer.cpp) share the emitter below, which knows in which
// types operands lie.
#pragma once

#include "compiler/codegen/kernels/ElementEmitter.h"

#include "mlir/IR/IRMapping.h"

namespace fsdpc::codegen::kernels {

/// An optimizer's element type of the layout's copy of the weights for
/// computation. There is such a copy if it is a 16-bit type.
inline constexpr llvm::StringLiteral kComputeAttr = "nn.compute";

/// The type in which an optimizer's gradient is read, if it is not f32.
inline constexpr llvm::StringLiteral kGradientAttr = "nn.gradient";

/// Returns the type of the compute copy that an optimizer's program writes, or
/// null if there is none.
mlir::Type computeCopyOf(mlir::func::FuncOp program);

/// Returns the 16-bit type in which the program's gradient lies, or null if it
/// is f32.
mlir::Type narrowGradientOf(mlir::func::FuncOp program);

/// Returns the number of f64 that the program takes for each member beside lr,
/// step and decay.
unsigned sumsOf(mlir::func::FuncOp program);

/// Returns true if the program's results are summed (fsdp.member_sums).
bool yieldsSums(mlir::func::FuncOp program);

/// Base of the emitters for the host and for grids. The program has the
/// signature (f32 parameter, f32 gradient, f32 states…, f64 lr, f64 step, f64
/// decay, f64 sums…) -> (f32 parameter, f32 states…), or -> (f64 …) if its
/// results are summed. In front of the states it may take one f32 more, which
/// has no result: the average of squares from factors. If it has a compute copy
/// (kComputeAttr), that is replicated, and the rank's part of it is stored as
/// well. A program whose last argument is an i32 takes a random word there and
/// yields a parameter of bf16; there is no f32 of that in memory. One whose
/// results are summed takes such a parameter in bf16. A gradient of 16 bits
/// (kGradientAttr) is widened, which is exact.
class OptimizerEmitter {
protected:
  OptimizerEmitter(mlir::OpBuilder &builder, mlir::func::FuncOp program,
                   bool roundsBf16)
      : builder(builder), loc(builder.getUnknownLoc()),
        body(program.getBody().front()), copyType(computeCopyOf(program)),
        gradientType(narrowGradientOf(program)), roundsBf16(roundsBf16),
        takesWord(program.getArgumentTypes().back().isInteger(32)),
        isSum(yieldsSums(program)), sums(sumsOf(program)),
        states(program.getNumArguments() - 5 - sums - takesWord) {}

  template <typename OpTy, typename... Args> mlir::Value make(Args &&...args) {
    return OpTy::create(builder, loc, std::forward<Args>(args)...);
  }
  mlir::Value i64(int64_t value);
  mlir::Value address(mlir::Value base, mlir::Type element, mlir::Value index);
  /// Emits the ops that depend on lr, step, decay and sums only, and loads what
  /// random words depend on. `buffers` are set. `numbers` is
  /// the address of the first three, `memberSums` that of the others, as
  /// doubles.
  void emitUniform(mlir::Value numbers, mlir::Value memberSums);
  /// Emits the program for `width` elements from `index` on and returns its
  /// results. The caller promises that `index` is a multiple of `lanes`.
  llvm::SmallVector<mlir::Value> emitProgram(mlir::Value index, int64_t width,
                                             int64_t lanes = 1);
  /// The same for an optimizer, with the stores of its results.
  void emitStep(mlir::Value index, int64_t width, int64_t lanes = 1);
  /// Emits the sums of the program's results over the 16 elements from `index`
  /// on, without those past `end`, as fsdpc_member_sums wants them: `to` has
  /// those of the groups from `begin` on.
  void emitGroup(mlir::Value index, mlir::Value begin, mlir::Value end,
                 mlir::Value to, int64_t lanes = 1);
  unsigned bufferCount() const {
    return 2 + states + (copyType || takesWord ? 1 : 0);
  }

  mlir::OpBuilder &builder;
  mlir::Location loc;
  mlir::Block &body;
  mlir::Type copyType;     ///< of the compute copy; null if there is none
  mlir::Type gradientType; ///< of 16 bits; null: f32
  bool roundsBf16;
  bool takesWord; ///< of the generator, to round the parameter
  bool isSum;     ///< the results are summed
  unsigned sums, states;
  llvm::SmallVector<mlir::Value>
      buffers;       ///< parameter, gradient, states, the copy or the key
  mlir::Value scale; ///< f32 factor of the gradient (clipping)

private:
  /// Loads `width` elements of a buffer, in f32 if it `widens`. `half` is their
  /// type in memory, null if that is f32.
  mlir::Value loadElements(mlir::Value buffer, mlir::Type half,
                           mlir::Value index, int64_t width, int64_t lanes,
                           bool widens = true);
  mlir::Value randomWords(mlir::Value index, int64_t width);
  mlir::Value upperHalf(mlir::Value value, int64_t width);
  mlir::Value sumLanes(mlir::Value vector);
  void cloneOp(mlir::Operation &op, mlir::IRMapping &mapping, int64_t width);

  mlir::IRMapping uniform; ///< values that are the same for all elements
  /// The key of the random words, as fsdpc_optimizer lists it; empty if the
  /// program takes none.
  llvm::SmallVector<mlir::Value> key;
};

/// Builds the body of `function`, which applies `program` to the elements
/// [begin, end) of the buffers of fsdpc_optimizer, or sums its results over
/// them as fsdpc_member_sums wants (fsdpc.h).
void emitOptimizer(mlir::OpBuilder &builder, mlir::func::FuncOp program,
                   mlir::func::FuncOp function, const VectorTarget &target);

} // namespace fsdpc::codegen::kernels

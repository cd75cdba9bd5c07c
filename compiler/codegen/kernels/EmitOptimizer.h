// Applies the scalar program of an optimizer to the elements of a shard.
#pragma once

#include "compiler/codegen/kernels/ElementEmitter.h"

#include "mlir/IR/IRMapping.h"

namespace fsdpc::codegen::kernels {

/// An optimizer's element type of the layout's copy of the weights for
/// computation. There is such a copy if it is a 16-bit type.
inline constexpr llvm::StringLiteral kComputeAttr = "nn.compute";

/// Returns the type of the compute copy that an optimizer's program writes, or
/// null if there is none.
mlir::Type computeCopyOf(mlir::func::FuncOp program);

/// Base of the emitters for the host and for grids. The program has the
/// signature (f32 parameter, f32 gradient, f32 states…, f64 lr, f64 step, f64
/// decay) -> (f32 parameter, f32 states…). If it has a compute copy
/// (kComputeAttr), that is replicated, and the rank's part of it is stored as
/// well.
class OptimizerEmitter {
protected:
  OptimizerEmitter(mlir::OpBuilder &builder, mlir::func::FuncOp program,
                   bool roundsBf16)
      : builder(builder), loc(builder.getUnknownLoc()),
        body(program.getBody().front()), copyType(computeCopyOf(program)),
        roundsBf16(roundsBf16), states(program.getNumArguments() - 5) {}

  template <typename OpTy, typename... Args> mlir::Value make(Args &&...args) {
    return OpTy::create(builder, loc, std::forward<Args>(args)...);
  }
  mlir::Value i64(int64_t value);
  mlir::Value address(mlir::Value base, mlir::Type element, mlir::Value index);
  // Emits the ops that depend on lr, step and decay only. `numbers` is the
  // address of these three, as doubles.
  void emitUniform(mlir::Value numbers);
  // Emits the update of `width` elements from `index` on. The caller promises
  // that `index` is a multiple of `lanes`.
  void emitStep(mlir::Value index, int64_t width, int64_t lanes = 1);
  unsigned bufferCount() const { return 2 + states + (copyType ? 1 : 0); }

  mlir::OpBuilder &builder;
  mlir::Location loc;
  mlir::Block &body;
  mlir::Type copyType; // of the compute copy; null if there is none
  bool roundsBf16;
  unsigned states;
  llvm::SmallVector<mlir::Value>
      buffers;       // master weights, gradient, states, the copy
  mlir::Value scale; // f32 factor of the gradient (clipping)

private:
  void cloneOp(mlir::Operation &op, mlir::IRMapping &mapping, int64_t width);

  mlir::IRMapping uniform; // values that are the same for all elements
};

/// Builds the body of `function`, which applies `program` to the elements
/// [begin, end) of the buffers of fsdpc_optimizer (fsdpc.h).
void emitOptimizer(mlir::OpBuilder &builder, mlir::func::FuncOp program,
                   mlir::func::FuncOp function, const VectorTarget &target);

} // namespace fsdpc::codegen::kernels

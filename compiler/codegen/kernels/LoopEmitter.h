// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Emits a planned kernel as loops of vector code for a processor. Threads
// divide the outer range among them; a call computes the steps [begin, end).
#pragma once

#include "compiler/codegen/kernels/ElementEmitter.h"

namespace fsdpc::codegen::kernels {

/// Emits one kernel; an instance is used once. It extends the plan's index
/// space while it emits, and owns neither the plan nor the kernel.
class LoopEmitter : ElementEmitter {
public:
  LoopEmitter(mlir::OpBuilder &builder, mlir::func::FuncOp kernel,
              KernelPlan &plan, const VectorTarget &target)
      : ElementEmitter(builder, kernel, plan, target) {}

  /// Builds the body of `function` (i64 begin, i64 end, ptr buffers).
  mlir::LogicalResult emit(mlir::func::FuncOp function);

private:
  /// Running values of a stage that reduces rows: for each part of a run, one
  /// value per vector of its width and reduction.
  using Accumulators = llvm::SmallVector<llvm::SmallVector<mlir::Value, 4>, 3>;

  /// The loops of the range, then those of one stage, whose lanes are [low,
  /// high). emitParts cuts the latter where the plan says.
  void emitRows(mlir::Value begin, mlir::Value end);
  void emitStage(Stage &stage, mlir::Value low, mlir::Value high);
  void emitParts(Stage &stage, mlir::Value low, mlir::Value high);
  /// Computes the roots at the current lanes: stores what is not reduced, and
  /// returns the next running values of what is.
  llvm::SmallVector<mlir::Value> step(Stage &stage, mlir::ValueRange carried);
  std::pair<mlir::Value, mlir::Value> beginBlock(mlir::Value block);
  int64_t widest(const Stage &stage) const;
  llvm::SmallVector<int64_t> widthsFor(const Stage &stage) const;
  /// EmitRows.cpp
  void emitReducingStage(Stage &stage);
  void emitRun(Stage &stage, Accumulators &sums);
  /// EmitColumns.cpp
  void emitColumns(Stage &stage, mlir::Value low, mlir::Value high);
};

} // namespace fsdpc::codegen::kernels

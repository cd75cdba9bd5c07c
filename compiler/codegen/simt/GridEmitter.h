// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Emits a planned kernel as the code of one thread of a grid. Threads that
// share a row or columns exchange their partial results; no memory is updated
// atomically, so the bits depend on the plan only.
#pragma once

#include "compiler/analysis/kernels/GridPlan.h"
#include "compiler/codegen/kernels/ElementEmitter.h"
#include "compiler/codegen/simt/GridBuilder.h"

#include <vector>

namespace fsdpc::nn {
class EmbeddingGradOp;
class ReduceOp;
} // namespace fsdpc::nn

namespace fsdpc::codegen::simt {

using analysis::GridPlan;
using analysis::kWarp;

/// Emits one kernel. An instance is used once; it borrows the plan, whose index
/// space it extends, and the grid.
class GridEmitter : kernels::ElementEmitter {
public:
  GridEmitter(mlir::OpBuilder &builder, mlir::func::FuncOp kernel,
              kernels::KernelPlan &plan, const GridPlan &grid,
              const kernels::VectorTarget &target,
              mlir::gpu::GPUFuncOp function)
      : ElementEmitter(builder, kernel, plan, target), grid(grid),
        function(function), threads(builder, function, grid.threads) {}

  /// Builds the body of the function, which has a pointer per operand, then one
  /// per result.
  void emit();

private:
  using Values = llvm::SmallVector<mlir::Value>;
  using Body = llvm::function_ref<Values(mlir::ValueRange)>;
  using Stage = kernels::Stage;
  using Root = kernels::Root;

  /// One function per template.
  void emitMap();
  void emitColumns(); ///< GridColumns.cpp
  /// GridEmbeddingGrad.cpp
  void emitEmbeddingGrad();
  struct Places;
  struct PlacesOfRow;
  void sumTableRows(const Places &places, mlir::Value first, mlir::Value rows,
                    mlir::Value fits);
  mlir::Value beginSum(nn::EmbeddingGradOp op,
                       const kernels::IndexExpr &address);
  mlir::Value addPlaces(const Places &places, mlir::Value number,
                        mlir::Value sum);
  mlir::Value addGroup(const Places &places, mlir::Value at, int64_t length,
                       const PlacesOfRow &row, bool isCut, mlir::Value sum);
  /// Builds code in a loop that carries values, whose depth is 1.
  using InTurn = llvm::function_ref<Values(mlir::Value, mlir::ValueRange)>;
  Values inTurn(mlir::Value low, mlir::Value high, int64_t step,
                mlir::ValueRange carried, InTurn body);
  /// GridPlaces.cpp
  Places beginPlaces();
  /// Lists those of the places [from, to) whose ids are of the block's rows
  /// [first, first + rows), in any order. Returns how many there are, which may
  /// be more than the list holds.
  mlir::Value collectPlaces(const Places &places, mlir::Value first,
                            mlir::Value rows, mlir::Value from, mlir::Value to);
  /// Sorts the `found` keys of the list and finds those of each row.
  void orderPlaces(const Places &places, mlir::Value found, mlir::Value rows);
  mlir::Value keyOf(const Places &places, mlir::Value number);
  PlacesOfRow placesOf(const Places &places, mlir::Value number);
  mlir::Value keyAt(const Places &places, mlir::Value place, mlir::Value first,
                    mlir::Value rows);
  void append(const Places &places, mlir::Value key);
  void exchangeKeys(const Places &places, mlir::Value number, mlir::Value run,
                    mlir::Value apart);
  void sortKeys(const Places &places, mlir::Value size);
  void markRows(const Places &places, mlir::Value found);
  /// GridRows.cpp
  void emitRows();
  /// Emits the stages of one row for its team.
  void emitRow();
  void emitStage(size_t number);
  bool sharesMemory() const; ///< shared memory is used again by the next row
  /// A stage with one element per row.
  Values emitSingle(Stage &stage, mlir::ValueRange carried);
  /// A loop over the vectors of a stage that this thread takes.
  Values overVectors(Stage &stage, mlir::ValueRange carried, Body body);

  /// GridOnline.cpp
  /// Emits stage `number`, a maximum, and the next one, a sum, as one loop.
  void emitOnline(size_t number);
  Values onlineStep(Root &most, Root &sum, mlir::ValueRange carried);
  mlir::Value aboveInfinity(mlir::Value maximum);
  mlir::Value rescaling(mlir::Value from, mlir::Value to);
  mlir::Value agree(nn::ReduceOp op, mlir::Value value);

  /// GridRowSums.cpp
  /// Emits a block of rows that are added up.
  void emitRowBlock(mlir::Value block);
  mlir::Value opaque(mlir::Value number);
  /// The same as overVectors, unrolled, with running sums in registers.
  Values overOwnVectors(Stage &stage, mlir::ValueRange carried, Body body);
  Values ownVector(Stage &stage, int64_t number, mlir::ValueRange carried,
                   Body body);
  /// Combines the sums of the block's teams and stores them. `line` is the
  /// number of the thread's team, null if there is one team.
  void storeRowSums(mlir::Value line);
  struct SumVector;
  struct SumRound;
  std::vector<SumRound> formRounds(bool hasTeams);
  void storeVector(const SumVector &vector, mlir::ValueRange sums);
  /// Returns how many vectors of a stage a thread owns, the same in every row.
  int64_t ownVectors(const Stage &stage) const;

  /// Builds `body` once for each part of the lanes' loop. The thread's vector
  /// lies in one part, and only that body runs.
  Values overParts(Stage &stage, mlir::ValueRange carried, Body body);
  /// Sets the lane variable and the outer variable for vector number `flat` of
  /// `outer` runs of lanes.
  void setPosition(Stage &stage, const kernels::IndexExpr &outerVariable,
                   int64_t outer, mlir::Value flat);
  /// Computes one vector: returns the next running values and stores outputs.
  Values step(Stage &stage, mlir::ValueRange carried);
  /// Builds `body` inside an scf.if, as the scope at `depth`.
  void guarded(int depth, mlir::Value condition,
               llvm::function_ref<void()> body);

  /// Returns i32 if all numbers below `limit`, plus one step of a loop, fit,
  /// else i64.
  mlir::Type counter(int64_t limit);
  /// A constant of a counter's type.
  mlir::Value count(mlir::Type type, int64_t value);
  mlir::Value convert(mlir::Value value, mlir::Type type);
  mlir::Value toIndex(mlir::Value value) {
    return convert(value, builder.getI64Type());
  }
  /// Returns the i1 `value < limit`, unsigned.
  mlir::Value below(mlir::Value value, int64_t limit);

  const GridPlan &grid;
  mlir::gpu::GPUFuncOp function;
  GridBuilder threads;
  mlir::Value member; ///< number of the thread in its row's team, i32
  /// Running sums of a block of rows, one for each stage, each vector that the
  /// thread owns, and each root, in this order. `nextSum` is the first of the
  /// next stage.
  Values rowSums;
  size_t nextSum = 0;
};

} // namespace fsdpc::codegen::simt

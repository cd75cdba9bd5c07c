// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Emits embedding_grad (the gradient of a lookup: a scatter-add) for the host.
// The scheme is explained in EmitEmbeddingGrad.cpp. A "place" is a position in
// the list of ids.
#pragma once

#include "compiler/codegen/kernels/ElementEmitter.h"
#include "compiler/dialects/nn/ShapeOps.h"

namespace fsdpc::codegen::kernels {

/// Emits one kernel. It is a copy of the LoopEmitter's state, because the loops
/// differ from the template's: each is over columns, places or rows.
class EmbeddingGradEmitter : ElementEmitter {
public:
  /// Copies the state of an emitter that has loaded the kernel's buffers.
  explicit EmbeddingGradEmitter(const ElementEmitter &kernelEmitter);

  /// Builds the loops over the blocks of columns [begin, end).
  void emit(mlir::Value begin, mlir::Value end);

private:
  /// Loops over the columns of this call, or over all places; `body` is built
  /// inside.
  void overColumns(llvm::function_ref<void()> body);
  void overPlaces(llvm::function_ref<void()> body);

  void beginTable();
  mlir::Value rowOf();
  mlir::Value counts(mlir::Value id);
  /// `rounds` is set if the sum is final and the table of a 16-bit type.
  void addRow(mlir::Value to, mlir::Type type, const IndexExpr &at,
              bool rounds);
  void copyRow(mlir::Value from, mlir::Type fromType, const IndexExpr &source,
               mlir::Value to, mlir::Type toType, const IndexExpr &at);
  void addEachPlace();
  void addOnlyPlace();

  mlir::Value placeAt(mlir::Value list, mlir::Value position);
  void setPlace(mlir::Value list, mlir::Value position, mlir::Value value);
  /// Bring equal ids together (16-bit types only).
  void linkPlaces();
  void sumPlaces();
  void addPlacesFrom(mlir::Value first);
  int placeVariable() const { return stage.outerVariable.terms.front().first; }

  nn::EmbeddingGradOp op;
  Stage &stage; ///< lanes are columns, the outer loop runs over places
  const Root &root;
  mlir::Type declared; ///< element type of the table
  int64_t tableRows;
  mlir::Value table;
  Index idsIndex;
  mlir::Value low, high;         ///< the columns of this call
  mlir::Value zero, rows, count; ///< 0, the table's rows, the number of ids
  IndexExpr tableRow,
      address; ///< a row, and the address of its element at the lane
  /// 16-bit types only: the sums of a row, the first place of each row, and the
  /// next place of each place.
  mlir::Value sums, firstPlaces, nextPlaces;
};

} // namespace fsdpc::codegen::kernels

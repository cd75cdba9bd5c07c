// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shared by the files of the reference interpreter: the table in which each
// registers its ops, and walks over indices.
#pragma once

#include "compiler/dialects/nn/NNOps.h"
#include "compiler/dialects/nn/reference/Reference.h"

#include "llvm/ADT/DenseMap.h"

#include <functional>

namespace fsdpc::nn::reference {

/// In the order of the op's operands; absent optional ones have no entry.
using Inputs = llvm::ArrayRef<ReferenceTensor>;

/// Evaluates ops by their class. A function gets the op, its inputs, and a
/// tensor of zeros per result, which the caller rounds to the result's type
/// afterwards.
class ReferenceTable {
public:
  using Function =
      std::function<void(mlir::Operation *, Inputs, ReferenceTensors &)>;

  /// `evaluate` is called as evaluate(OpTy, Inputs, ReferenceTensors &).
  template <typename OpTy, typename Evaluate> void add(Evaluate evaluate) {
    functions[mlir::TypeID::get<OpTy>()] =
        [evaluate](mlir::Operation *op, Inputs in, ReferenceTensors &out) {
          evaluate(llvm::cast<OpTy>(op), in, out);
        };
  }

  /// Returns null for an op that has no reference.
  const Function *find(mlir::Operation *op) const {
    auto found = functions.find(op->getName().getTypeID());
    return found == functions.end() ? nullptr : &found->second;
  }

private:
  llvm::DenseMap<mlir::TypeID, Function> functions;
};

/// One function per file: adds the ops of its family.
void addElementwise(ReferenceTable &table);
void addRandom(ReferenceTable &table);
void addShape(ReferenceTable &table);
void addReductions(ReferenceTable &table);
void addNorms(ReferenceTable &table);
void addLosses(ReferenceTable &table);
void addAttention(ReferenceTable &table);
void addMatmul(ReferenceTable &table);
void addConvolutions(ReferenceTable &table);
void addPooling(ReferenceTable &table);

/// GELU of a number, and its derivative there.
double gelu(double x, GeluForm form);
double geluDerivative(double x, GeluForm form);

/// The index of a result's element, outermost dimension first.
using Index = llvm::ArrayRef<int64_t>;

/// Calls `visit(index, position)` for each element in row-major order.
void forEachIndex(llvm::ArrayRef<int64_t> shape,
                  llvm::function_ref<void(Index, int64_t)> visit);

/// Returns the row-major position of an index, which must have the shape's rank
/// and lie within it.
int64_t positionOf(llvm::ArrayRef<int64_t> shape, Index index);

/// Returns the position of `index` in a tensor of `shape`, which broadcasts to
/// the shape of the index. Leading dimensions that `shape` lacks are dropped.
int64_t broadcastPosition(llvm::ArrayRef<int64_t> shape, Index index);

/// Returns the input for `operand`, or null if an optional operand is absent.
template <typename Range>
const ReferenceTensor *optionalInput(Inputs in, const Range &operand) {
  return operand.empty() ? nullptr : &in[operand.begin()->getOperandNumber()];
}

} // namespace fsdpc::nn::reference

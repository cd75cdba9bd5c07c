// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A plain interpreter of nn ops, in doubles and 64-bit integers: the executable
// meaning of each op, after StableHLO's reference. Compiled kernels and
// adjoints are tested against it, and the importer folds constants with it.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

#include <vector>

namespace fsdpc::nn {

/// A tensor in row-major order. Elements are in `floats` if the element type is
/// a float, else in `ints` (i1 as 0 or 1, i8 sign-extended).
struct ReferenceTensor {
  llvm::SmallVector<int64_t> shape;
  mlir::Type element;
  std::vector<double> floats;
  std::vector<int64_t> ints;

  /// The vector that the element type does not use stays empty.
  static ReferenceTensor zeros(mlir::RankedTensorType type);
  /// Fails for elements that are not dense, such as a resource that is absent.
  /// Widens each element exactly.
  static mlir::FailureOr<ReferenceTensor> fromAttr(mlir::ElementsAttr attr);
  /// Returns a dense attribute of type `type()`. Elements must be rounded
  /// before.
  mlir::DenseElementsAttr toAttr() const;

  bool isFloat() const { return llvm::isa<mlir::FloatType>(element); }
  int64_t size() const { return isFloat() ? floats.size() : ints.size(); }
  mlir::RankedTensorType type() const;
  /// Rounds floats to the element type, wraps integers to its width.
  void round();
};

using ReferenceTensors = llvm::SmallVector<ReferenceTensor>;

/// Returns the results of one nn op for the given operands, each rounded to its
/// type. The op must have passed its verifier: shapes are not checked again. A
/// launch evaluates its kernel. Emits an error for an op without a reference,
/// such as one of another dialect. Safe to call from several threads.
mlir::FailureOr<ReferenceTensors>
evaluate(mlir::Operation *op, llvm::ArrayRef<ReferenceTensor> operands);

/// Evaluates ops that are not of the nn dialect, such as loads of symbols and
/// sinks; called in program order.
using EvaluateOther = llvm::function_ref<mlir::FailureOr<ReferenceTensors>(
    mlir::Operation *, llvm::ArrayRef<ReferenceTensor>)>;

/// Returns the operands of the function's terminator. The body must be one flat
/// block, and `inputs` must match its arguments in number and type. Without
/// `evaluateOther`, an op of another dialect is an error. Every value is kept
/// until the end.
mlir::FailureOr<ReferenceTensors>
evaluateFunction(mlir::FunctionOpInterface function,
                 llvm::ArrayRef<ReferenceTensor> inputs,
                 EvaluateOther evaluateOther = nullptr);

} // namespace fsdpc::nn

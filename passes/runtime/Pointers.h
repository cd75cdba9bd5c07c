// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns tensor values into pointers: the space, symbol and offset that hold a
// value after planning. Finds the symbols that pointers name.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/rt/RTDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace fsdpc::nn {
class ConstantOp;
} // namespace fsdpc::nn

namespace fsdpc::passes {

/// The layout whose gradient's memory has a value that `plan-memory` has not
/// placed in the arena.
using OwnersOfMemory = llvm::DenseMap<mlir::Value, mlir::FlatSymbolRefAttr>;

/// Builds pointers at the insertion point of `builder`, and the symbols that
/// they name in the module of `symbols`. Both are borrowed and must outlive the
/// object. One object serves one function; constants are shared within it.
class PointerBuilder {
public:
  /// Constants that the module has already, for another function, are shared.
  PointerBuilder(mlir::SymbolTable &symbols, const OwnersOfMemory &owners,
                 mlir::OpBuilder &builder);

  /// Builds an rt.pointer to `value` at the builder's insertion point. The
  /// value is a planned result (`fsdp.offsets`), a view of one, an argument, a
  /// constant, or memory behind a symbol.
  mlir::Value get(mlir::Location loc, mlir::Value value);
  /// Builds a pointer to bytes of the arena.
  mlir::Value arena(mlir::Location loc, int64_t offset, int64_t bytes) {
    return pointer(loc, rt::Space::arena, {}, offset, bytes);
  }
  /// Builds a pointer to the memory of a layout that is replicated.
  mlir::Value whole(mlir::Location loc, mlir::FlatSymbolRefAttr layout);

  /// Declares an rt.input for each argument of the function.
  void declareInputs(mlir::func::FuncOp function);
  /// Returns a private function `nn.optimizer` with the region's code. Equal
  /// regions share one.
  mlir::FlatSymbolRefAttr outlineOptimizer(fsdp::OptimizerOp op);
  /// The same for the program of member sums. Its results are f64.
  mlir::FlatSymbolRefAttr outlineSums(fsdp::MemberSumsOp op);
  /// Builds a pointer to the sums of the layout's members. Returns null if the
  /// optimizer takes none.
  mlir::Value sumsOf(fsdp::OptimizerOp op);
  /// The same for the factors of their rows and columns.
  mlir::Value factorsOf(fsdp::OptimizerOp op);
  /// Returns a private function `nn.rows` that holds a copy of the attention
  /// op, from which its row kernel is generated. Equal ops share one. Returns
  /// null if the device computes attention by itself.
  mlir::FlatSymbolRefAttr outlineRows(mlir::Operation *attention);

private:
  /// Builds a pointer to `count` f64 of a planned tensor.
  mlir::Value numbersFrom(mlir::Location loc, mlir::Value numbers,
                          int64_t first, int64_t count);
  /// Builds a private kernel of the name with a copy of the region, whose
  /// terminator becomes a return.
  mlir::func::FuncOp outline(mlir::Operation *op, llvm::StringRef name);
  /// Returns the name of `kernel`, or of an equal one with the same mark, in
  /// which case `kernel` is erased.
  mlir::FlatSymbolRefAttr share(mlir::func::FuncOp kernel,
                                llvm::StringRef mark);
  mlir::FlatSymbolRefAttr constant(nn::ConstantOp op);
  /// `at` is where in the arena gathered parameters begin.
  mlir::Value pointer(mlir::Location loc, rt::Space space,
                      mlir::FlatSymbolRefAttr symbol, int64_t offset,
                      int64_t bytes, mlir::IntegerAttr at = {});

  mlir::SymbolTable &symbols;
  const OwnersOfMemory &owners;
  mlir::OpBuilder &builder;
  /// The symbol of each constant that has one, by its value.
  llvm::DenseMap<mlir::Attribute, mlir::FlatSymbolRefAttr> constants;
};

} // namespace fsdpc::passes

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Helpers for implementations of AccessRangesOpInterface. RT_Call generates
// getAccessRanges of each call from the expressions of its arguments in ODS,
// which ask AccessSizes for the bytes behind a symbol.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/rt/RTDialect.h"

#include "mlir/IR/SymbolTable.h"

namespace fsdpc::rt {

/// Adds the range behind one address. `addresses` is an operand, or an optional
/// one; if it is absent, nothing is added and `bytes` is not called.
llvm::LogicalResult
addRange(mlir::MutableOperandRange addresses,
         llvm::function_ref<llvm::FailureOr<int64_t>()> bytes,
         llvm::SmallVectorImpl<AccessRange> &ranges);

/// Adds one range per address. Emits an error if `bytes` has another number of
/// entries than there are addresses.
llvm::LogicalResult
addRanges(mlir::MutableOperandRange addresses,
          const llvm::FailureOr<llvm::SmallVector<int64_t>> &bytes,
          llvm::SmallVectorImpl<AccessRange> &ranges);

/// Computes the bytes of buffers from the symbols that an op names. Every
/// function that takes a symbol emits an error at the op if the module lacks
/// it. Padding for other numbers of ranks is not counted, except in
/// wholeGradient.
class AccessSizes {
public:
  /// `symbols` is the table of the op's module; both are borrowed.
  AccessSizes(mlir::Operation *op, const mlir::SymbolTable &symbols)
      : op(op), symbols(symbols) {}

  using Bytes = llvm::FailureOr<int64_t>;
  using EachBytes = llvm::FailureOr<llvm::SmallVector<int64_t>>;
  using Layouts = llvm::ArrayRef<mlir::FlatSymbolRefAttr>;

  /// The bytes of `count` exact sums, which have norm_digits.h's digits each.
  static int64_t exactSums(int64_t count);

  /// The flat buffer of a layout, or of each, in the layout's compute type.
  Bytes flat(mlir::FlatSymbolRefAttr layout) const;
  EachBytes flats(Layouts layouts) const;
  /// The layout's gradient in f32, with the padding of --max-ranks shards.
  Bytes wholeGradient(mlir::FlatSymbolRefAttr layout) const;
  /// `perMember` exact sums for each member of the layouts.
  Bytes memberSums(Layouts layouts, int64_t perMember) const;
  /// One f64 for each row and column of the layouts' members.
  Bytes factors(Layouts layouts) const;
  /// The sums from which the factors follow, as f64.
  Bytes factorSums(Layouts layouts) const;
  /// One f32 for each element of the layout's members.
  Bytes matrices(mlir::FlatSymbolRefAttr layout) const;
  /// The same with the room in which they are orthogonalised.
  Bytes orthogonalized(mlir::FlatSymbolRefAttr layout) const;
  /// A buffer of the model.
  Bytes buffer(mlir::FlatSymbolRefAttr name) const;
  /// The operands of a kernel, then its results.
  EachBytes buffersOf(mlir::FlatSymbolRefAttr kernel) const;

private:
  template <typename OpTy>
  llvm::FailureOr<OpTy> lookup(mlir::FlatSymbolRefAttr name,
                               llvm::StringRef what) const;
  llvm::FailureOr<fsdp::LayoutOp> layout(mlir::FlatSymbolRefAttr name) const;
  /// Adds up a number of each layout.
  Bytes
  sumOver(Layouts layouts,
          llvm::function_ref<int64_t(fsdp::LayoutOp layout)> number) const;

  mlir::Operation *op;
  const mlir::SymbolTable &symbols;
};

} // namespace fsdpc::rt

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arguments that an op passes to its function of the C ABI. The classes of
// arguments in RTBase.td say which of these functions passes an argument.
#pragma once

#include "compiler/dialects/rt/RTDialect.h"

namespace fsdpc::rt {

/// Receives the arguments of one call in the order of the C function's
/// parameters. Code generation implements it.
class CallArguments {
public:
  virtual ~CallArguments() = default;

  /// The index of a plan in the manifest's table of its kind.
  virtual void plan(PlanAttrInterface plan) = 0;
  /// An outlined kernel. `name` is null if the call has none.
  virtual void kernel(mlir::FlatSymbolRefAttr name) = 0;
  /// The index of a layout, and the number of layouts with their indices.
  virtual void layout(mlir::FlatSymbolRefAttr name) = 0;
  virtual void layouts(mlir::ArrayAttr names) = 0;
  /// The index of a buffer of the model.
  virtual void buffer(mlir::FlatSymbolRefAttr name) = 0;
  /// The address that a pointer stands for. `pointer` is null if it is absent.
  virtual void address(mlir::Value pointer) = 0;
  /// An array of addresses, alone and with its length.
  virtual void addresses(mlir::ValueRange pointers) = 0;
  virtual void countedAddresses(mlir::ValueRange pointers) = 0;
  /// A number of the attribute's type: i32 and i64, or f64.
  virtual void constant(mlir::IntegerAttr value) = 0;
  virtual void constant(mlir::FloatAttr value) = 0;
};

} // namespace fsdpc::rt

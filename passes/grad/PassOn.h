// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replaces ops that have become the identity, and marks what is built in the
// place of an op.
#pragma once

#include "passes/grad/WeightDerived.h"

#include "mlir/IR/Builders.h"

namespace fsdpc::passes {

/// Gives `to` the unit, the module and the type of `from`, as far as it has
/// them.
void copyOrigin(mlir::Operation *from, mlir::Operation *to);

/// Gives every op that is built the unit and the module of the op that it
/// replaces, and keeps it in f32 as that.
struct MarkPlace : mlir::OpBuilder::Listener {
  explicit MarkPlace(mlir::Operation *source) : source(source) {}

  void notifyOperationInserted(mlir::Operation *op,
                               mlir::OpBuilder::InsertPoint) override;

  mlir::Operation *source;
};

/// Lets the users of an op's result read `operand` instead. If that is a
/// weight, users in other units than the op's, and those whose views are read
/// there, read a copy that is made in the op's unit, since each unit loads the
/// weights that it reads. The op stays,
/// without uses.
void passOn(mlir::Value result, mlir::Value operand, const Origins &origins);

/// Lets the users of each nn.custom_gradient read its values, and erases them.
/// Returns false if the block has none.
bool passOnCustomGradients(mlir::Block &body, const Origins &origins);

} // namespace fsdpc::passes

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Index maps: for an op that moves elements, the source of each element.
#pragma once

#include "compiler/analysis/kernels/IndexExpr.h"
#include "mlir/IR/Operation.h"

namespace fsdpc::analysis {

/// True if `expr` lies in `allowed`.
struct Condition {
  IndexExpr expr;
  IndexRange allowed;
};

enum class Decision { Always, Never, Depends };
/// Decides a condition from the ranges of the variables, if they suffice.
Decision decide(const IndexSpace &space, const Condition &condition);

/// An element of an operand, to be taken if all the conditions hold.
struct Source {
  mlir::Value value;
  Index index;
  llvm::SmallVector<Condition, 2> conditions;
};

/// Returns the sources of element `index` of an op that moves elements. The
/// element is the first source whose conditions hold, or 0 if there is none.
/// Sources that can never apply are left out, and the last source of a concat
/// has no conditions. Indices stay inside the operand even if the conditions do
/// not hold, so that code may load first and select later. Returns nothing for
/// other ops.
llvm::SmallVector<Source, 1> sourcesOf(IndexSpace &space, mlir::Operation *op,
                                       const Index &index);

/// Returns true if `sourcesOf` knows the op.
bool movesElements(mlir::Operation *op);

} // namespace fsdpc::analysis

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The sums, factors and updates that optimizers take beside the gradient: where
// they begin, and their rules.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace fsdpc::fsdp {

/// Maps the name of a layout to the index at which its numbers begin in a
/// vector that holds the numbers of several layouts.
using Places = llvm::DenseMap<mlir::Attribute, int64_t>;

/// Returns the rows at which the sums of the layouts begin in the op's result.
Places placesOfSums(MemberSumsOp sums, const mlir::SymbolTable &symbols);

/// Returns where the factors of the layouts begin in the op's result.
Places placesOfFactors(UpdateFactorsOp factors,
                       const mlir::SymbolTable &symbols);

/// The rules of these inputs. Errors begin with the name of the rule.
class OptimizerInputs {
public:
  /// `symbols` are those of the module and must outlive this; `clip` scales its
  /// gradients.
  OptimizerInputs(mlir::Block &update, ClipScaleOp clip,
                  const mlir::SymbolTable &symbols);

  /// Checks that the sums, factors and updates of an optimizer are those that
  /// its layout says it takes, over all ranks and scaled by `clip`.
  llvm::LogicalResult verify(OptimizerOp optimizer);

  /// Checks that the optimizers take all that @update computes for them, once.
  /// An edit may have left the rest behind.
  llvm::LogicalResult verifyUsed();

private:
  std::optional<int64_t> placeIn(mlir::Operation *op, OptimizerOp optimizer);
  llvm::LogicalResult verifyTaken(OptimizerOp optimizer);
  llvm::LogicalResult verifySums(OptimizerOp optimizer);
  llvm::LogicalResult verifyFactors(OptimizerOp optimizer);
  llvm::LogicalResult verifyFactors(MemberSumsOp sums);
  llvm::LogicalResult verifyMemberSums();

  mlir::Block &update;
  ClipScaleOp clip;
  const mlir::SymbolTable &symbols;
  /// By the op that computes the vector. Each optimizer asks where its own
  /// numbers begin, which would otherwise add up those of all before it.
  llvm::DenseMap<mlir::Operation *, Places> places;
};

} // namespace fsdpc::fsdp

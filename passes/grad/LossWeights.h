// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says how the runtime computes the weights of means before a step: an
// fsdp.loss_weight for all means of a function that divide by the same.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "passes/grad/WeightedMeans.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"

namespace fsdpc::passes {

/// The operands of a cross-entropy that say which targets count.
struct Targets {
  mlir::Value targets, weights; ///< weights of classes, or null
  mlir::IntegerAttr ignored;    ///< or null
};

Targets targetsOf(mlir::Operation *entropy);

/// Returns true if `counted` is the mask of the targets that are not ignored.
bool ignoresAs(const Targets &of, mlir::Value counted, const SampleFlow &flow);

class LossWeights {
public:
  LossWeights(mlir::func::FuncOp function, const SampleFlow &flow)
      : function(function), body(function.front()), flow(flow),
        symbols(function->getParentOfType<mlir::ModuleOp>()) {}

  /// Returns the weight of a mean, or null if the runtime cannot compute it, or
  /// not quickly.
  fsdp::LossWeightOp weightOf(const WeightedMean &mean);

private:
  using Key =
      std::tuple<mlir::Value, mlir::Value, mlir::Attribute, mlir::Attribute>;
  fsdp::LossWeightOp build(const WeightedMean &mean, mlir::Value counted,
                           llvm::ArrayRef<mlir::Operation *> ops);

  mlir::func::FuncOp function;
  mlir::Block &body;
  const SampleFlow &flow;
  mlir::SymbolTable symbols;
  llvm::DenseMap<Key, fsdp::LossWeightOp> weights;
};

} // namespace fsdpc::passes

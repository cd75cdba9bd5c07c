// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reverse-mode differentiation of one function.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/ProductSums.h"
#include "passes/grad/PassOn.h"
#include "passes/grad/SliceGradients.h"
#include "passes/grad/WeightDerived.h"

#include "llvm/ADT/MapVector.h"

namespace fsdpc::passes {

/// Marks every inserted op as part of the backward of `primal`: with its unit,
/// its module, its type if that is kept, and `fsdp.backward`.
struct MarkBackward : mlir::OpBuilder::Listener {
  mlir::Operation *primal = nullptr;

  void notifyOperationInserted(mlir::Operation *op,
                               mlir::OpBuilder::InsertPoint) override {
    op->setAttr(fsdp::FSDPDialect::kBackwardAttr,
                mlir::UnitAttr::get(op->getContext()));
    copyOrigin(primal, op);
  }
};

/// Differentiates one function in place: the backward is appended to its block.
/// An op is visited when the gradients of all its results are complete, which
/// `pending` counts. The primal function is not changed.
class Differentiator {
public:
  explicit Differentiator(mlir::FunctionOpInterface function)
      : body(function.getFunctionBody().front()), origins(body),
        builder(function->getContext(), &mark) {
    builder.setInsertionPoint(body.getTerminator());
  }

  /// With `scalesLoss` the gradients are those of the loss times the scale of
  /// the step.
  mlir::LogicalResult run(fsdp::ReportLossOp report, bool scalesLoss);

  unsigned adjoints = 0;
  /// The loads that the loss depends on, by parameter, in program order.
  llvm::MapVector<mlir::StringAttr, mlir::SmallVector<fsdp::LoadOp>> active;

private:
  /// Called once, before the sweep.
  void analyseActivity(mlir::Value loss);
  /// Active ops are those whose operands depend on a trainable parameter and on
  /// whose results the loss depends; no other op needs an adjoint.
  bool isActive(mlir::Operation *op) const {
    return !llvm::isa<nn::StopGradientOp>(op) &&
           llvm::any_of(op->getOperands(),
                        [&](mlir::Value v) { return varied.contains(v); }) &&
           llvm::any_of(op->getResults(),
                        [&](mlir::Value v) { return useful.contains(v); });
  }
  bool isWeightOnly(mlir::Operation *op) const {
    return op->getNumResults() != 0 && origins.isWeight(op->getResult(0));
  }
  mlir::LogicalResult differentiate(mlir::Operation *op);
  mlir::LogicalResult buildAdjoint(mlir::Operation *op);
  mlir::Value addTo(mlir::Value sum, mlir::Value gradient, mlir::Value of);
  void addGradient(mlir::Value value, mlir::Value gradient);
  void finishLoad(fsdp::LoadOp load);
  /// Returns a complete gradient in its simplest form.
  mlir::Value simplify(mlir::Value gradient) {
    return products.merge(builder, slices.concat(builder, gradient));
  }
  mlir::Value makeSeed(fsdp::ReportLossOp report, bool scalesLoss);

  /// The rest is the state of the sweep. `origins` is computed before any op of
  /// the backward exists, so it covers the forward only.
  mlir::Block &body;
  Origins origins;
  mlir::SymbolTableCollection symbols;
  MarkBackward mark;
  mlir::OpBuilder builder;
  SliceGradients slices;
  nn::ProductSums products;
  /// Floats that depend on a trainable parameter, and those that the loss
  /// depends on.
  mlir::DenseSet<mlir::Value> varied, useful;
  /// The number of active users that are not yet differentiated.
  mlir::DenseMap<mlir::Value, unsigned> pending;
  mlir::DenseMap<mlir::Value, mlir::Value> gradients;
  mlir::DenseMap<mlir::StringAttr, unsigned> pendingLoads;
};

} // namespace fsdpc::passes

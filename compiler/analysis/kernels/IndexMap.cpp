// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The index maps of ops that move elements: for an element of the result, which
// element of which operand it is. With them, kernels read through reshapes,
// transposes, slices and concatenations without copying anything.
#include "compiler/analysis/kernels/IndexMap.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/Interfaces.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;
using nn::shapeOf;

// Compares the range of the expression with the allowed one.
Decision analysis::decide(const IndexSpace &space, const Condition &condition) {
  IndexRange range = space.range(condition.expr);
  if (range.low >= condition.allowed.low &&
      range.high <= condition.allowed.high)
    return Decision::Always;
  if (range.high < condition.allowed.low || range.low > condition.allowed.high)
    return Decision::Never;
  return Decision::Depends;
}

bool analysis::movesElements(Operation *op) {
  return isa<nn::ElementSourceOpInterface>(op);
}

namespace {

// An affine expression over the result's index, and over `dynamic` as symbol 0.
IndexExpr evaluate(IndexSpace &space, AffineExpr expr, const Index &index,
                   const IndexExpr &dynamic) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return index[dim.getPosition()];
  if (isa<AffineSymbolExpr>(expr))
    return dynamic;
  auto binary = cast<AffineBinaryOpExpr>(expr);
  IndexExpr left = evaluate(space, binary.getLHS(), index, dynamic);
  if (expr.getKind() == AffineExprKind::Add)
    return space.add(left, evaluate(space, binary.getRHS(), index, dynamic));
  int64_t right = cast<AffineConstantExpr>(binary.getRHS()).getValue();
  switch (expr.getKind()) {
  case AffineExprKind::Mul:
    return space.scale(left, right);
  case AffineExprKind::Mod:
    return space.mod(left, right);
  case AffineExprKind::FloorDiv:
    return space.floorDiv(left, right);
  default:
    llvm_unreachable("sources do not divide upwards");
  }
}

// Returns true if a condition is on a dimension that the coordinate depends on:
// the coordinate may then leave the operand where the condition does not hold.
bool isConditional(AffineExpr coordinate, const nn::ElementSource &source) {
  return llvm::any_of(source.conditions, [&](const auto &condition) {
    return llvm::any_of(llvm::seq(source.map.getNumDims()), [&](unsigned dim) {
      return coordinate.isFunctionOfDim(dim) &&
             condition.expr.isFunctionOfDim(dim);
    });
  });
}

Source resolve(IndexSpace &space, Operation *op,
               const nn::ElementSource &source, const Index &index) {
  Value operand = op->getOperand(source.operand);
  Source result{operand, {}, {}};
  // No map: the row-major position stays, as in a reshape.
  if (!source.map) {
    IndexExpr linear = space.linearize(index, shapeOf(op->getResult(0)));
    result.index = space.delinearize(linear, shapeOf(operand));
    return result;
  }
  IndexExpr dynamic;
  if (source.dynamic) {
    Index at;
    for (AffineExpr expr : source.dynamic->map.getResults())
      at.push_back(evaluate(space, expr, index, {}));
    dynamic = space.dynamic(op->getOperand(source.dynamic->operand), at,
                            source.dynamic->size, source.dynamic->wraps);
  }
  for (const nn::IndexCondition &condition : source.conditions)
    result.conditions.push_back(
        {evaluate(space, condition.expr, index, dynamic),
         {condition.low, condition.high}});
  for (auto [expr, size] :
       llvm::zip_equal(source.map.getResults(), shapeOf(operand))) {
    IndexExpr position = evaluate(space, expr, index, dynamic);
    if (isConditional(expr, source))
      position = space.clamp(position, {0, size - 1});
    result.index.push_back(position);
  }
  return result;
}

} // namespace

SmallVector<Source, 1> analysis::sourcesOf(IndexSpace &space, Operation *op,
                                           const Index &index) {
  auto moving = dyn_cast<nn::ElementSourceOpInterface>(op);
  if (!moving)
    return {};
  SmallVector<nn::ElementSource, 1> all = moving.getElementSources();
  SmallVector<Source, 1> sources;
  for (const nn::ElementSource &each : all) {
    Source source = resolve(space, op, each, index);
    SmallVector<Condition, 2> open;
    bool never = false;
    for (const Condition &condition : source.conditions) {
      Decision decision = decide(space, condition);
      never |= decision == Decision::Never;
      if (decision == Decision::Depends)
        open.push_back(condition);
    }
    source.conditions = open;
    if (!never)
      sources.push_back(source);
  }
  // Several sources cover the result, so the last one needs no condition.
  if (all.size() > 1 && !sources.empty())
    sources.back().conditions.clear();
  return sources;
}

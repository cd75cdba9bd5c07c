// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The verifiers of the ops of @update that look at symbols: besides references
// to layouts, they check the sizes that follow from a layout's members, such as
// sums, factors and matrices.
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/dialects/fsdp/VerifySymbols.h"
#include "compiler/options/Options.h"
#include "runtime/abi/norm_digits.h"

using namespace mlir;

namespace fsdpc::fsdp {

// ---- sums and gradients ----

// Returns true if the rows are digits of exact sums
// (runtime/abi/norm_digits.h).
static bool hasDigits(RankedTensorType type) {
  return type.getRank() == 2 && type.getDimSize(1) == normDigits;
}

// One sum of squares per layout, over the rank's part of its gradient.
static bool isSumPerLayout(RankedTensorType type, ArrayAttr layouts) {
  return hasDigits(type) &&
         type.getDimSize(0) == static_cast<int64_t>(layouts.size());
}

LogicalResult SumSquaresOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!isSumPerLayout(getResult().getType(), getLayouts()))
    return emitOpError() << "has result type " << getResult().getType()
                         << " for " << getLayouts().size() << " layouts";
  return verifyLayouts(*this, symbols, getLayouts(), Members::Trainable);
}

LogicalResult ClipScaleOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!isSumPerLayout(getSums().getType(), getLayouts()))
    return emitOpError() << "has sums of type " << getSums().getType()
                         << " for " << getLayouts().size() << " layouts";
  return verifyLayouts(*this, symbols, getLayouts(), Members::Trainable);
}

// Checks that a one-dimensional tensor has the length that follows from its
// layout.
static LogicalResult verifyElements(Operation *op, Value value,
                                    int64_t needed) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getShape() == ArrayRef<int64_t>{needed})
    return success();
  return op->emitOpError() << "has type " << type << " where " << needed
                           << " elements are needed";
}

LogicalResult
WholeGradientOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyLayout(*this, symbols, getLayoutAttr(), Members::Trainable)))
    return failure();
  auto layout = *find<LayoutOp>(*this, symbols, getLayoutAttr());
  auto options = CompileOptions::of((*this)->getParentOfType<ModuleOp>());
  return verifyElements(*this, getResult(),
                        wholeGradientElementsOf(layout, options));
}

// These three name layouts and take no tensors: they work on the memory of
// layouts.
LogicalResult
GatherGradientsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyLayouts(*this, symbols, getLayouts(), Members::Trainable);
}

LogicalResult
ReduceGradientsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyLayouts(*this, symbols, getLayouts(), Members::Trainable);
}

LogicalResult
GatherParametersOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyLayouts(*this, symbols, getLayouts(), Members::Any);
}

static SymbolTable &tableOf(Operation *op, SymbolTableCollection &symbols) {
  return symbols.getSymbolTable(SymbolTable::getNearestSymbolTable(op));
}

// Adds up what `number` says of the layouts.
static int64_t overLayouts(ArrayAttr names, const SymbolTable &symbols,
                           int64_t (*number)(LayoutOp, const SymbolTable &)) {
  int64_t count = 0;
  for (auto name : names.getAsRange<FlatSymbolRefAttr>())
    count += number(symbols.lookup<LayoutOp>(name.getAttr()), symbols);
  return count;
}

// Checks that a tensor has the numbers from which factors follow.
static LogicalResult verifyFactorSums(Operation *op,
                                      SymbolTableCollection &symbols,
                                      ArrayAttr names, Type type) {
  int64_t needed = overLayouts(names, tableOf(op, symbols), factorSumsOf);
  if (cast<RankedTensorType>(type).getShape() == ArrayRef<int64_t>{needed})
    return success();
  return op->emitOpError() << "has sums of type " << type << ", but those of "
                           << "the members are " << needed;
}

// Checks that a tensor has a number per row and column of the layouts' members.
static LogicalResult verifyFactors(Operation *op,
                                   SymbolTableCollection &symbols,
                                   ArrayAttr names, Type type) {
  int64_t needed = overLayouts(names, tableOf(op, symbols), factorsOf);
  if (cast<RankedTensorType>(type).getShape() == ArrayRef<int64_t>{needed})
    return success();
  return op->emitOpError() << "has type " << type << " for " << needed
                           << " rows and columns of the members";
}

LogicalResult FactorSumsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyLayouts(*this, symbols, getLayouts(), Members::Trainable)))
    return failure();
  return verifyFactorSums(*this, symbols, getLayouts(), getResult().getType());
}

// Without one of these buffers the runtime would have no place for the state.
LogicalResult
UpdateFactorsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyLayouts(*this, symbols, getLayouts(), Members::Trainable)) ||
      failed(verifyFactorSums(*this, symbols, getLayouts(),
                              getSums().getType())) ||
      failed(
          verifyFactors(*this, symbols, getLayouts(), getResult().getType())))
    return failure();
  for (auto name : getLayouts().getAsRange<FlatSymbolRefAttr>())
    for (auto member : find<LayoutOp>(*this, symbols, name)
                           ->getMembers()
                           .getAsRange<MemberAttr>()) {
      auto parameter = find<ParameterOp>(*this, symbols, member.getParameter());
      if (failed(parameter))
        return failure();
      for (const FactorBuffer &wanted : factorBuffersOf(*parameter)) {
        auto buffer = tableOf(*this, symbols)
                          .lookup<BufferOp>(symbolOfTensor(wanted.name));
        if (!buffer || !buffer.getState() || buffer.getType() != wanted.type)
          return emitOpError() << "needs a buffer '" << wanted.name << "' of "
                               << wanted.type << ", marked 'state'";
      }
    }
  return success();
}

// Checks that the members of the layout are trainable matrices.
static LogicalResult verifyMatrices(Operation *op,
                                    SymbolTableCollection &symbols,
                                    FlatSymbolRefAttr name) {
  if (failed(verifyLayout(op, symbols, name, Members::Trainable)))
    return failure();
  auto layout = *find<LayoutOp>(op, symbols, name);
  for (auto member : layout.getMembers().getAsRange<MemberAttr>()) {
    auto parameter = find<ParameterOp>(op, symbols, member.getParameter());
    if (failed(parameter))
      return failure();
    int64_t rank = cast<RankedTensorType>(parameter->getType()).getRank();
    if (rank != 2)
      return op->emitOpError()
             << "takes matrices, but parameter '" << parameter->getSymName()
             << "' has " << rank << " dimensions";
  }
  return success();
}

LogicalResult
MomentumUpdatesOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyMatrices(*this, symbols, getLayoutAttr())))
    return failure();
  auto layout = *find<LayoutOp>(*this, symbols, getLayoutAttr());
  if (layout.getStates() < 1)
    return emitOpError() << "needs a state, but layout '" << getLayout()
                         << "' has none";
  return verifyElements(*this, getResult(), memberElementsOf(layout));
}

LogicalResult
CollectMatricesOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyMatrices(*this, symbols, getLayoutAttr())))
    return failure();
  auto layout = *find<LayoutOp>(*this, symbols, getLayoutAttr());
  return verifyElements(*this, getInput(), memberElementsOf(layout));
}

LogicalResult
OrthogonalizeOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyMatrices(*this, symbols, getLayoutAttr())))
    return failure();
  if (getAdjust() != "original" && getAdjust() != "match_rms_adamw")
    return emitOpError() << "has adjust '" << getAdjust()
                         << "'; expected original or match_rms_adamw";
  // The runtime's argument is an int32, and ns-steps allows 1 to 99.
  auto steps = static_cast<int32_t>(getSteps());
  if (steps < 1 || steps > 99)
    return emitOpError() << "has " << steps << " steps; expected 1 to 99";
  auto layout = *find<LayoutOp>(*this, symbols, getLayoutAttr());
  if (failed(verifyElements(*this, getUpdates(), memberElementsOf(layout))))
    return failure();
  return verifyElements(*this, getResult(), orthogonalElementsOf(layout));
}

LogicalResult
SpreadMatricesOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyMatrices(*this, symbols, getLayoutAttr())))
    return failure();
  auto layout = *find<LayoutOp>(*this, symbols, getLayoutAttr());
  return verifyElements(*this, getInput(), orthogonalElementsOf(layout));
}

// The layout allocates `states` flat buffers; the region takes one argument for
// each, beside parameter, gradient, lr, step and decay.
static LogicalResult verifyStates(Operation *op, LayoutOp layout,
                                  unsigned arguments) {
  if (arguments == layout.getStates() + 5)
    return success();
  return op->emitOpError() << "has " << arguments
                           << " arguments, but parameter, gradient, "
                           << layout.getStates()
                           << " states, lr, step and decay need "
                           << layout.getStates() + 5;
}

LogicalResult OptimizerOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyLayout(*this, symbols, getLayoutAttr(), Members::Trainable)))
    return failure();
  auto layout = *find<LayoutOp>(*this, symbols, getLayoutAttr());
  int64_t sums = getSumsPerMember();
  if (takesWord() != layout.getNoMaster())
    return emitOpError() << (takesWord() ? "takes a random word"
                                         : "takes no random word")
                         << ", but layout '" << layout.getSymName() << "' has "
                         << (layout.getNoMaster() ? "no master" : "a master");
  unsigned others = sums + takesNumbers() + takesWord();
  if (failed(verifyStates(*this, layout, getBody().getNumArguments() - others)))
    return failure();
  if (getUpdates() &&
      (failed(verifyMatrices(*this, symbols, getLayoutAttr())) ||
       failed(
           verifyElements(*this, getUpdates(), orthogonalElementsOf(layout)))))
    return failure();
  if (getFactors()) {
    int64_t count = getFactors().getType().getNumElements(),
            first = *getFirstFactor(),
            needed = factorsOf(layout, tableOf(*this, symbols));
    // Subtraction and not addition on the right: an edited offset may be huge.
    if (first < 0 || first > count || needed > count - first)
      return emitOpError() << "reads " << needed << " factors from " << first
                           << " on, of " << count;
  }
  if (!getSums())
    return success();
  if (!hasDigits(getSums().getType()))
    return emitOpError() << "has sums of type " << getSums().getType()
                         << ", without rows of " << normDigits << " digits";
  int64_t first = *getFirst(), count = getSums().getType().getDimSize(0),
          needed = sums * static_cast<int64_t>(layout.getMembers().size());
  if (first < 0 || first > count || needed > count - first)
    return emitOpError() << "reads " << needed << " sums from " << first
                         << " on, of " << count;
  return success();
}

LogicalResult MemberSumsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyLayouts(*this, symbols, getLayouts(), Members::Trainable)))
    return failure();
  int64_t members = 0;
  for (auto name : getLayouts().getAsRange<FlatSymbolRefAttr>()) {
    auto layout = *find<LayoutOp>(*this, symbols, name);
    Type parameter = getBody().getArgument(0).getType();
    if (parameter.isBF16() != layout.getNoMaster())
      return emitOpError() << "takes parameters of type " << parameter
                           << ", but layout '" << layout.getSymName()
                           << "' has "
                           << (layout.getNoMaster() ? "no master" : "a master");
    members += layout.getMembers().size();
    unsigned others = getFactors() ? 1 : 0;
    if (failed(
            verifyStates(*this, layout, getBody().getNumArguments() - others)))
      return failure();
  }
  if (getFactors() && failed(verifyFactors(*this, symbols, getLayouts(),
                                           getFactors().getType())))
    return failure();
  if (!hasDigits(getResult().getType()) ||
      getResult().getType().getDimSize(0) != members * getSumsPerMember())
    return emitOpError() << "has result type " << getResult().getType()
                         << " for " << getSumsPerMember() << " sums of each of "
                         << members << " members";
  return success();
}

} // namespace fsdpc::fsdp

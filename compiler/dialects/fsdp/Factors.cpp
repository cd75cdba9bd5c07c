// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names the buffers that hold the state of an optimizer with averages of
// squares along rows and columns, and gives their shapes: those of torch.optim,
// so that a converted state needs no other shape.
#include "compiler/dialects/fsdp/Layouts.h"

#include "compiler/dialects/fsdp/SymbolNames.h"
#include "llvm/Support/MathExtras.h"

#include <utility>

using namespace mlir;

namespace fsdpc::fsdp {

// The shape as numbers, so that compiler and runtime factor alike
// (runtime/abi/factors.h).
FactorShape factorShapeOf(ParameterOp parameter) {
  return fsdpc::factorShapeOf(
      cast<RankedTensorType>(parameter.getType()).getShape().vec());
}

// Adds up a number of each member's shape.
static int64_t overShapes(LayoutOp layout, const SymbolTable &symbols,
                          int64_t (FactorShape::*number)() const) {
  int64_t count = 0;
  for (auto member : layout.getMembers().getAsRange<MemberAttr>())
    if (auto parameter =
            symbols.lookup<ParameterOp>(member.getParameter().getAttr()))
      count += (factorShapeOf(parameter).*number)();
  return count;
}

int64_t factorsOf(LayoutOp layout, const SymbolTable &symbols) {
  return overShapes(layout, symbols, &FactorShape::count);
}

int64_t factorSumsOf(LayoutOp layout, const SymbolTable &symbols) {
  return overShapes(layout, symbols, &FactorShape::sumCount);
}

int64_t memberElementsOf(LayoutOp layout) {
  int64_t count = 0;
  for (auto member : layout.getMembers().getAsRange<MemberAttr>())
    count += member.getElements();
  return count;
}

// Newton and Schulz's step keeps up to four matrices of the largest member's
// size beside the updates. Each begins at a multiple of 16 bytes: products of
// others may take another algorithm on a GPU.
int64_t orthogonalElementsOf(LayoutOp layout) {
  int64_t largest = 0;
  for (auto member : layout.getMembers().getAsRange<MemberAttr>())
    largest = std::max<int64_t>(largest, member.getElements());
  return llvm::alignTo(memberElementsOf(layout), 4) +
         4 * llvm::alignTo(largest, 4);
}

SmallVector<FactorBuffer, 2> factorBuffersOf(ParameterOp parameter) {
  std::string name = nameOf(parameter).str();
  auto type = cast<RankedTensorType>(parameter.getType());
  SmallVector<int64_t> shape(type.getShape());
  auto with = [&](const char *suffix) {
    return FactorBuffer{
        name + suffix,
        RankedTensorType::get(shape, Float32Type::get(type.getContext()))};
  };
  if (shape.size() < 2)
    return {with(vectorFactors)};
  // The averages have the parameter's shape with one of the last two axes
  // reduced to extent 1: columns for the rows' averages, rows for the columns'.
  int64_t columns = std::exchange(shape.back(), 1);
  FactorBuffer rows = with(rowFactors);
  shape.back() = columns;
  shape[shape.size() - 2] = 1;
  return {rows, with(columnFactors)};
}

} // namespace fsdpc::fsdp

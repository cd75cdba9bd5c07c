// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Queries of layouts: flat types, blocks on the wire, and what a layout keeps.
// Layouts of constants in a type of their own are buffers of bytes. Factors.cpp
// has those of optimizers that factor their state.
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/options/OptionTypes.h"
#include "compiler/options/Options.h"

using namespace mlir;

namespace fsdpc::fsdp {

// Pairs results with layouts by their position: an all-gather of several
// layouts has one result for each. Block arguments belong to no layout.
FlatSymbolRefAttr getLayoutOf(Value flat) {
  auto result = dyn_cast<OpResult>(flat);
  auto user =
      result ? dyn_cast<LayoutUserOpInterface>(result.getOwner()) : nullptr;
  if (!user)
    return {};
  SmallVector<FlatSymbolRefAttr> layouts = user.getLayoutRefs();
  unsigned index = result.getResultNumber();
  return index < layouts.size() ? layouts[index] : FlatSymbolRefAttr();
}

RankedTensorType getFlatType(LayoutOp layout) {
  return RankedTensorType::get({static_cast<int64_t>(layout.getElements())},
                               layout.getCompute());
}

bool isPointwise(LayoutOp layout) {
  OptimizerAttr optimizer = layout.getOptimizerAttr();
  return !optimizer || optimizer.isPointwise();
}

// Each shard pads by less than its alignment.
int64_t wholeGradientElementsOf(LayoutOp layout,
                                const CompileOptions &options) {
  return static_cast<int64_t>(layout.getElements()) +
         options.maxRanks * options.shardAlignment();
}

int64_t memberAlignment(const CompileOptions &options, bool ofBytes) {
  if (ofBytes)
    return kByteAlignment;
  return options.sendsBlocks() ? blockElements : kMemberAlignment;
}

int64_t memberSizeOf(ParameterOp parameter) {
  return parameter.getStored()
             ? nn::tensorBytes(parameter.getType())
             : cast<ShapedType>(parameter.getType()).getNumElements();
}

// The verifier has checked that the offset is one of whole elements.
int64_t ViewOp::getOffsetInElements() {
  return static_cast<int64_t>(getOffset()) *
         nn::elementBytes(getFlat().getType()) /
         nn::elementBytes(getResult().getType());
}

Type wireTypeOf(BlockType type, MLIRContext *context) {
  switch (type) {
  case BlockType::None:
  case BlockType::I4: // of gradients alone
    return {};
  case BlockType::I8:
    return IntegerType::get(context, 8);
  case BlockType::F8E4M3:
    return Float8E4M3FNType::get(context);
  }
  llvm_unreachable("covered above");
}

BlockType wireOf(LayoutOp layout) {
  std::optional<Type> wire = layout.getWire();
  if (!wire)
    return BlockType::None;
  return wire->isInteger(8) ? BlockType::I8 : BlockType::F8E4M3;
}

int64_t gatheredBytesOf(LayoutOp layout) {
  int64_t elements = layout.getElements();
  return wireOf(layout) == BlockType::None
             ? elements * nn::elementBytes(layout.getCompute())
             : blockedBytes(elements, wireOf(layout));
}

bool keepsWhole(LayoutOp layout, StringRef what) {
  return llvm::any_of(layout.getWhole().getAsRange<StringAttr>(),
                      [&](StringAttr name) { return name.getValue() == what; });
}

bool keepsF32(ParameterOp parameter) {
  return parameter->hasAttr(FSDPDialect::kKeepF32Attr);
}

// A layout without members is of no parameter that is kept.
bool keepsF32(LayoutOp layout, const SymbolTable &symbols) {
  auto members = layout.getMembers().getAsRange<MemberAttr>();
  if (members.empty())
    return false;
  auto parameter =
      symbols.lookup<ParameterOp>((*members.begin()).getParameter().getAttr());
  return parameter && keepsF32(parameter);
}

} // namespace fsdpc::fsdp

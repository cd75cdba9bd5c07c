// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The verifiers of fsdp ops that look at symbols: the symbols exist and are of
// the right kind, and buffers have the size and type of their layout. Dumps are
// edited by hand, so every reference is checked. The ops of @update are in
// VerifyUpdateSymbols.cpp.
#include "compiler/dialects/fsdp/VerifySymbols.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/options/OptionTypes.h"

using namespace mlir;

namespace fsdpc::fsdp {

LogicalResult verifyLayout(Operation *op, SymbolTableCollection &symbols,
                           FlatSymbolRefAttr name, Members members,
                           Type buffer) {
  auto layout = find<LayoutOp>(op, symbols, name);
  if (failed(layout))
    return failure();
  if (members == Members::Trainable && !layout->getTrainable())
    return op->emitOpError()
           << "references layout '" << name.getValue()
           << "', whose members are frozen; a trainable layout is required";
  if (buffer && buffer != getFlatType(*layout)) {
    InFlightDiagnostic diag = op->emitOpError()
                              << "has a buffer of type " << buffer
                              << " for layout '" << name.getValue()
                              << "', which requires " << getFlatType(*layout);
    diag.attachNote(layout->getLoc()) << "layout defined here";
    return diag;
  }
  return success();
}

LogicalResult verifyLayouts(Operation *op, SymbolTableCollection &symbols,
                            ArrayAttr layouts, Members members) {
  for (auto name : layouts.getAsRange<FlatSymbolRefAttr>())
    if (failed(verifyLayout(op, symbols, name, members)))
      return failure();
  return success();
}

LogicalResult verifyLayouts(Operation *op, SymbolTableCollection &symbols,
                            ArrayAttr layouts, Members members,
                            TypeRange buffers) {
  if (layouts.size() != buffers.size())
    return op->emitOpError() << "has " << layouts.size() << " layouts and "
                             << buffers.size() << " buffers";
  for (auto [name, buffer] :
       llvm::zip(layouts.getAsRange<FlatSymbolRefAttr>(), buffers))
    if (failed(verifyLayout(op, symbols, name, members, buffer)))
      return failure();
  return success();
}

namespace {

// The layouts of a gather that keeps or reads secondary shards have them. Must
// be called when the names are verified.
template <typename OpTy>
LogicalResult verifySecondary(OpTy gather, SymbolTableCollection &symbols) {
  if (!gather.getKeepSecondary() && !gather.getFromSecondary())
    return success();
  for (FlatSymbolRefAttr name : gather.getLayoutRefs()) {
    auto layout = symbols.lookupNearestSymbolFrom<LayoutOp>(gather, name);
    if (!layout.getSecondary())
      return gather.emitOpError()
             << (gather.getKeepSecondary() ? "keeps" : "reads")
             << " the secondary shard of layout '" << name.getValue()
             << "', which has none";
  }
  return success();
}

LogicalResult verifyUnit(Operation *op, SymbolTableCollection &symbols,
                         FlatSymbolRefAttr unit) {
  return find<UnitOp>(op, symbols, unit);
}

} // namespace

// ---- symbols ----

LogicalResult ParameterOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return getUnitAttr() ? verifyUnit(*this, symbols, getUnitAttr()) : success();
}

// All members of a layout are trainable or all are frozen: the flat buffer is
// gathered, reduced and updated as a whole.
LogicalResult LayoutOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyUnit(*this, symbols, getUnitAttr())))
    return failure();
  for (auto member : getMembers().getAsRange<MemberAttr>()) {
    auto parameter = find<ParameterOp>(*this, symbols, member.getParameter());
    if (failed(parameter))
      return failure();
    if (parameter->getStored() != holdsBytes())
      return emitOpError() << "has " << (holdsBytes() ? "bytes" : "elements")
                           << ", but its member '" << parameter->getSymName()
                           << "' is "
                           << (holdsBytes() ? "not stored" : "stored");
    if (memberSizeOf(*parameter) != member.getElements())
      return emitOpError() << "has " << member.getElements()
                           << " elements for parameter '"
                           << parameter->getSymName() << "' of type "
                           << parameter->getType();
    if (parameter->getTrainable() != getTrainable())
      return emitOpError() << "contains parameter '" << parameter->getSymName()
                           << "', but its other members are "
                           << (getTrainable() ? "trainable" : "frozen");
  }
  return success();
}

// ---- import and grad ----

// A load names a parameter or a buffer; both have a type, but no common
// interface.
LogicalResult LossFactorOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return find<LossWeightOp>(*this, symbols, getWeightAttr());
}

LogicalResult LoadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Operation *symbol = symbols.lookupNearestSymbolFrom(*this, getSymbolAttr());
  Type type;
  if (auto parameter = dyn_cast_or_null<ParameterOp>(symbol))
    type = parameter.getType();
  else if (auto buffer = dyn_cast_or_null<BufferOp>(symbol))
    type = buffer.getType();
  else
    return emitOpError() << "references '" << getSymbol()
                         << "', which is not a parameter or buffer";
  if (type != getResult().getType())
    return emitOpError() << "has result type " << getResult().getType()
                         << " for '" << getSymbol() << "' of type " << type;
  return success();
}

// The element type may differ: mixed precision computes gradients in the
// compute type.
LogicalResult GradientOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto parameter = find<ParameterOp>(*this, symbols, getParameterAttr());
  if (failed(parameter))
    return failure();
  if (!parameter->getTrainable())
    return emitOpError() << "computes the gradient of parameter '"
                         << getParameter() << "', which is frozen";
  if (cast<ShapedType>(parameter->getType()).getShape() !=
      getValue().getType().getShape())
    return emitOpError() << "has value type " << getValue().getType()
                         << " for parameter '" << getParameter() << "' of type "
                         << parameter->getType();
  return success();
}

// The statistic is combined with the buffer without a conversion.
LogicalResult
UpdateStatisticsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto buffer = find<BufferOp>(*this, symbols, getBufferAttr());
  if (failed(buffer))
    return failure();
  if (buffer->getType() != getStatistic().getType())
    return emitOpError() << "has statistic type " << getStatistic().getType()
                         << " for buffer '" << getBuffer() << "' of type "
                         << buffer->getType();
  BufferMode known;
  if (std::optional<StringRef> mode = getMode())
    if (std::string fault = parseName(*mode, known); !fault.empty())
      return emitOpError() << "has mode '" << *mode << "', which " << fault;
  return success();
}

// ---- shard and collectives ----

LogicalResult FlatOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyLayout(*this, symbols, getLayoutAttr(), Members::Any,
                      getResult().getType());
}

LogicalResult ReplicatedOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyLayout(*this, symbols, getLayoutAttr(), Members::Any,
                      getResult().getType());
}

// A view reads a member from a flat buffer. An edited offset that falls on
// another member would train silently with the wrong weights, so the offset
// must be the one in the layout.
LogicalResult ViewOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto parameter = find<ParameterOp>(*this, symbols, getMemberAttr());
  if (failed(parameter))
    return failure();
  // Mixed precision changes the element type, but not of what is stored.
  bool isSame = parameter->getStored()
                    ? parameter->getType() == getResult().getType()
                    : cast<ShapedType>(parameter->getType()).getShape() ==
                          getResult().getType().getShape();
  if (!isSame)
    return emitOpError() << "has result type " << getResult().getType()
                         << " for parameter '" << getMember() << "' of type "
                         << parameter->getType();
  FlatSymbolRefAttr name = getLayoutOf(getFlat());
  if (!name)
    return success();
  auto layout = find<LayoutOp>(*this, symbols, name);
  if (failed(layout))
    return failure();
  // The layout's own verifier has checked that offsets rise, so a search finds
  // the member: a unit with thousands of members has as many views.
  auto members = layout->getMembers().getAsRange<MemberAttr>();
  auto offset = static_cast<int64_t>(getOffset());
  auto member = llvm::partition_point(members, [&](MemberAttr candidate) {
    return candidate.getOffset() < offset;
  });
  if (member != members.end() && (*member).getOffset() == offset &&
      (*member).getParameter() == getMemberAttr())
    return success();
  InFlightDiagnostic diag = emitOpError()
                            << "views '" << getMember() << "' at "
                            << getOffset() << ", but layout '"
                            << name.getValue() << "' does not have it there";
  diag.attachNote(layout->getLoc()) << "layout defined here";
  return diag;
}

// A pack writes one value per member, in the order of the members. Only the
// number of elements must agree: the flat buffer keeps no shapes.
LogicalResult PackOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyLayout(*this, symbols, getLayoutAttr(), Members::Trainable,
                          getResult().getType())))
    return failure();
  auto layout = *find<LayoutOp>(*this, symbols, getLayoutAttr());
  if (layout.getMembers().size() != getValues().size())
    return emitOpError() << "has " << getValues().size() << " values for the "
                         << layout.getMembers().size() << " members of layout '"
                         << getLayout() << "'";
  for (auto [member, value] :
       llvm::zip(layout.getMembers().getAsRange<MemberAttr>(), getValues())) {
    auto type = cast<ShapedType>(value.getType());
    if (type.getNumElements() != member.getElements() ||
        type.getElementType() != layout.getCompute())
      return emitOpError() << "has value type " << type << " for member '"
                           << member.getParameter().getValue() << "' of "
                           << member.getElements() << " elements of type "
                           << layout.getCompute();
  }
  return success();
}

LogicalResult ReduceOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyLayout(*this, symbols, getLayoutAttr(), Members::Trainable,
                      getGradient().getType());
}

LogicalResult AccumulateOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyLayout(*this, symbols, getLayoutAttr(), Members::Trainable,
                      getGradient().getType());
}

LogicalResult EnterOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyUnit(*this, symbols, getUnitAttr());
}

LogicalResult ExitOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyUnit(*this, symbols, getUnitAttr());
}

LogicalResult AllGatherOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyLayouts(*this, symbols, getLayouts(), Members::Any,
                           getResultTypes())))
    return failure();
  return verifySecondary(*this, symbols);
}

LogicalResult
AllGatherStartOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyLayouts(*this, symbols, getLayouts(), Members::Any)))
    return failure();
  return verifySecondary(*this, symbols);
}

// The op's own verifier reports a token of unknown origin.
LogicalResult
AllGatherWaitOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto start = getToken().getDefiningOp<AllGatherStartOp>();
  return start ? verifyLayouts(*this, symbols, start.getLayouts(), Members::Any,
                               getResultTypes())
               : success();
}

LogicalResult
ReduceScatterOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyLayouts(*this, symbols, getLayouts(), Members::Trainable,
                       getGradients().getTypes());
}

LogicalResult
ReduceScatterStartOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyLayouts(*this, symbols, getLayouts(), Members::Trainable,
                       getGradients().getTypes());
}

} // namespace fsdpc::fsdp

// The verifiers of fsdp ops that look at symbols: the symbols exist and are of
// the right kind, and buffers have the size and type of their layout. Dumps are
// edited by hand, so every reference is checked.
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/OptionTypes.h"
#include "compiler/dialects/fsdp/Options.h"
#include "shared/norm_digits.h"

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

// Shards are multiples of 128 bytes in the type of --param-dtype, or of blocks
// (CompileOptions::shardAlignment), so each of them pads by less than that many
// elements. A layout that --keep-f32 leaves in f32 is in a program whose type
// has 16 bits.
int64_t wholeGradientElementsOf(LayoutOp layout,
                                const CompileOptions &options) {
  int64_t bits =
      keepsF32(layout) ? 16 : layout.getCompute().getIntOrFloatBitWidth();
  int64_t alignment = options.sendsBlocks() ? blockElements : 128 * 8 / bits;
  return static_cast<int64_t>(layout.getElements()) +
         options.maxRanks * alignment;
}

int64_t memberAlignment(const CompileOptions &options) {
  return options.sendsBlocks() ? blockElements : kMemberAlignment;
}

Type wireTypeOf(BlockType type, MLIRContext *context) {
  switch (type) {
  case BlockType::None:
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
             ? elements * layout.getCompute().getIntOrFloatBitWidth() / 8
             : blockedBytes(elements);
}

bool keepsWhole(LayoutOp layout, StringRef what) {
  return llvm::any_of(layout.getWhole().getAsRange<StringAttr>(),
                      [&](StringAttr name) { return name.getValue() == what; });
}

bool keepsF32(ParameterOp parameter) {
  return parameter->hasAttr(FSDPDialect::kKeepF32Attr);
}

// A layout without members is of no parameter that is kept.
bool keepsF32(LayoutOp layout) {
  auto members = layout.getMembers().getAsRange<MemberAttr>();
  if (members.empty())
    return false;
  auto parameter = SymbolTable::lookupNearestSymbolFrom<ParameterOp>(
      layout, (*members.begin()).getParameter());
  return parameter && keepsF32(parameter);
}

namespace {

// Returns the symbol `name` as a `SymbolOp`. Emits an error if it does not
// exist or is an op of another kind.
template <typename SymbolOp>
FailureOr<SymbolOp> find(Operation *op, SymbolTableCollection &symbols,
                         FlatSymbolRefAttr name) {
  auto symbol = symbols.lookupNearestSymbolFrom<SymbolOp>(op, name);
  if (!symbol)
    return op->emitOpError()
           << "references '" << name.getValue() << "', which is not a "
           << SymbolOp::getOperationName();
  return symbol;
}

// The layouts that an op may name. Frozen layouts have no gradient and no
// optimizer state, so ops on these require trainable ones.
enum class Members { Any, Trainable };

// Checks one reference to a layout. `buffer`, if given, must be the type of the
// layout's flat buffer.
LogicalResult verifyLayout(Operation *op, SymbolTableCollection &symbols,
                           FlatSymbolRefAttr name, Members members,
                           Type buffer = {}) {
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

// Checks one buffer per layout, in the same order.
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
    if (cast<ShapedType>(parameter->getType()).getNumElements() !=
        member.getElements())
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
  if (cast<ShapedType>(parameter->getType()).getShape() !=
      getResult().getType().getShape())
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

// ---- @update ----

// Returns true if the rows are digits of exact sums (shared/norm_digits.h).
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

// Adds up what `number` says of the layouts.
static int64_t overLayouts(Operation *op, ArrayAttr names,
                           int64_t (*number)(LayoutOp)) {
  int64_t count = 0;
  for (auto name : names.getAsRange<FlatSymbolRefAttr>())
    count += number(SymbolTable::lookupNearestSymbolFrom<LayoutOp>(op, name));
  return count;
}

// Checks that a tensor has the numbers from which factors follow.
static LogicalResult verifyFactorSums(Operation *op, ArrayAttr names,
                                      Type type) {
  int64_t needed = overLayouts(op, names, factorSumsOf);
  if (cast<RankedTensorType>(type).getShape() == ArrayRef<int64_t>{needed})
    return success();
  return op->emitOpError() << "has sums of type " << type << ", but those of "
                           << "the members are " << needed;
}

// Checks that a tensor has a number per row and column of the layouts' members.
static LogicalResult verifyFactors(Operation *op, ArrayAttr names, Type type) {
  int64_t needed = overLayouts(op, names, factorsOf);
  if (cast<RankedTensorType>(type).getShape() == ArrayRef<int64_t>{needed})
    return success();
  return op->emitOpError() << "has type " << type << " for " << needed
                           << " rows and columns of the members";
}

LogicalResult FactorSumsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyLayouts(*this, symbols, getLayouts(), Members::Trainable)))
    return failure();
  for (auto name : getLayouts().getAsRange<FlatSymbolRefAttr>())
    if (isOffloaded(*find<LayoutOp>(*this, symbols, name), "gradient"))
      return emitOpError() << "reads the gradient of layout '"
                           << name.getValue() << "', which is offloaded";
  return verifyFactorSums(*this, getLayouts(), getResult().getType());
}

std::optional<int64_t>
UpdateFactorsOp::getFirstFactor(FlatSymbolRefAttr wanted) {
  int64_t first = 0;
  for (auto name : getLayouts().getAsRange<FlatSymbolRefAttr>()) {
    if (name == wanted)
      return first;
    first +=
        factorsOf(SymbolTable::lookupNearestSymbolFrom<LayoutOp>(*this, name));
  }
  return std::nullopt;
}

// Without one of these buffers the runtime would have no place for the state.
LogicalResult
UpdateFactorsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyLayouts(*this, symbols, getLayouts(), Members::Trainable)) ||
      failed(verifyFactorSums(*this, getLayouts(), getSums().getType())) ||
      failed(verifyFactors(*this, getLayouts(), getResult().getType())))
    return failure();
  for (auto name : getLayouts().getAsRange<FlatSymbolRefAttr>())
    for (auto member : find<LayoutOp>(*this, symbols, name)
                           ->getMembers()
                           .getAsRange<MemberAttr>()) {
      auto parameter = find<ParameterOp>(*this, symbols, member.getParameter());
      if (failed(parameter))
        return failure();
      for (const FactorBuffer &wanted : factorBuffersOf(*parameter)) {
        auto buffer = SymbolTable::lookupNearestSymbolFrom<BufferOp>(
            *this, StringAttr::get(getContext(), wanted.name));
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

// Only an optimizer goes through a layout piece by piece.
static LogicalResult verifyResident(Operation *op, LayoutOp layout) {
  if (!layout.getOffloaded())
    return success();
  return op->emitOpError() << "reads layout '" << layout.getSymName()
                           << "' in memory, which is offloaded";
}

LogicalResult
MomentumUpdatesOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyMatrices(*this, symbols, getLayoutAttr())))
    return failure();
  auto layout = *find<LayoutOp>(*this, symbols, getLayoutAttr());
  if (layout.getStates() < 1)
    return emitOpError() << "needs a state, but layout '" << getLayout()
                         << "' has none";
  if (failed(verifyResident(*this, layout)))
    return failure();
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
            first = *getFirstFactor(), needed = factorsOf(layout);
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
    if (layout.getNoMaster())
      return emitOpError() << "reads the parameters of layout '"
                           << layout.getSymName() << "', which has no master";
    members += layout.getMembers().size();
    unsigned others = getFactors() ? 1 : 0;
    if (failed(verifyStates(*this, layout,
                            getBody().getNumArguments() - others)) ||
        failed(verifyResident(*this, layout)))
      return failure();
  }
  if (getFactors() &&
      failed(verifyFactors(*this, getLayouts(), getFactors().getType())))
    return failure();
  if (!hasDigits(getResult().getType()) ||
      getResult().getType().getDimSize(0) != members * getSumsPerMember())
    return emitOpError() << "has result type " << getResult().getType()
                         << " for " << getSumsPerMember() << " sums of each of "
                         << members << " members";
  return success();
}

std::optional<int64_t> MemberSumsOp::getFirstSum(FlatSymbolRefAttr wanted) {
  int64_t first = 0;
  for (auto name : getLayouts().getAsRange<FlatSymbolRefAttr>()) {
    if (name == wanted)
      return first;
    auto layout = SymbolTable::lookupNearestSymbolFrom<LayoutOp>(*this, name);
    first += getSumsPerMember() * layout.getMembers().size();
  }
  return std::nullopt;
}

} // namespace fsdpc::fsdp

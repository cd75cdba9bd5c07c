// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The verifiers of fsdp ops that look at the op only. Those that look at
// symbols are in VerifySymbols.cpp, since MLIR runs them after the symbols
// themselves are verified.
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/WeightPrograms.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/options/OptionTypes.h"
#include "runtime/abi/compressions.h"
#include "runtime/abi/member_sums.h"

#include <algorithm>

using namespace mlir;

namespace fsdpc::fsdp {

LogicalResult ReportOutputOp::verify() {
  if (getName().empty())
    return emitOpError("has an empty name");
  if (isScalar() && !getValue().getType().getElementType().isF32())
    return emitOpError() << "'" << getName() << "' is a scalar of type "
                         << getValue().getType().getElementType()
                         << "; cast it to f32";
  return success();
}

LogicalResult BufferOp::verify() {
  if (getCalls() && !getCounts())
    return emitOpError("has 'calls', but does not count");
  return success();
}

bool isOffloaded(LayoutOp layout, StringRef what) {
  std::optional<ArrayAttr> kinds = layout.getOffloaded();
  return kinds &&
         llvm::is_contained(kinds->getAsValueRange<StringAttr>(), what);
}

// Values that all ranks have in full are no rank's part.
static LogicalResult verifyOffloaded(LayoutOp layout) {
  if (!layout.getOffloaded())
    return success();
  for (StringRef kind : layout.getOffloaded()->getAsValueRange<StringAttr>())
    if (!llvm::is_contained({"gradient", "parameter", "state"}, kind))
      return layout.emitOpError() << "cannot offload '" << kind
                                  << "'; expected gradient, parameter or state";
  if (isOffloaded(layout, "state") && layout.getStates() == 0)
    return layout.emitOpError("has its states offloaded, but has none");
  if (isOffloaded(layout, "gradient") && !layout.getTrainable())
    return layout.emitOpError("is frozen, but has its gradient offloaded");
  for (auto [kind, whole] :
       {std::pair("gradient", "gradient"), std::pair("parameter", "master")})
    if (isOffloaded(layout, kind) && keepsWhole(layout, whole))
      return layout.emitOpError()
             << "has its " << kind << " offloaded, but keeps '" << whole
             << "' replicated";
  return success();
}

LogicalResult
OptimizerAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                      ArrayAttr states, int64_t sums, bool factored,
                      bool orthogonal) {
  DenseSet<Attribute> names;
  for (Attribute state : states)
    if (!isa<StringAttr>(state) || !names.insert(state).second)
      return emitError() << "has states " << states
                         << "; expected different names";
  if (sums < 0 || sums > mostSums)
    return emitError() << "has " << sums << " sums; it may have " << mostSums;
  if (factored && orthogonal)
    return emitError() << "is both factored and orthogonal";
  return success();
}

// The average is a state, too, but none of the optimizer's.
static LogicalResult verifyOptimizer(LayoutOp layout) {
  OptimizerAttr optimizer = layout.getOptimizerAttr();
  if (!optimizer)
    return success();
  if (!layout.getTrainable())
    return layout.emitOpError("is frozen, but has an optimizer");
  int64_t own = layout.getStates() - int64_t(layout.getAverage());
  if (own != int64_t(optimizer.getStates().size()))
    return layout.emitOpError() << "has " << own << " states of its optimizer, "
                                << "but names " << optimizer.getStates();
  return success();
}

LogicalResult ParameterOp::verify() {
  if (getStored() && (getTrainable() || getRule()))
    return emitOpError() << "is stored, but "
                         << (getTrainable() ? "trainable" : "has a rule");
  return success();
}

// Checks the op alone; verifySymbolUses compares its members with parameters.
LogicalResult LayoutOp::verify() {
  if (!getCompute().isF32() && !nn::isHalf(getCompute()) && !holdsBytes())
    return emitOpError() << "has compute type " << getCompute()
                         << "; it must be f32, bf16 or f16, or ui8 for members "
                            "that are stored";
  if (holdsBytes() && (getTrainable() || getWire()))
    return emitOpError() << "is a layout of bytes, but "
                         << (getTrainable() ? "trainable"
                                            : "gathered in blocks");
  if (getNoMaster() && !getCompute().isBF16())
    return emitOpError() << "has no master, but compute type " << getCompute()
                         << "; it must be bf16";
  if (std::optional<StringRef> name = getStrategy()) {
    Strategy strategy;
    std::string fault = parseName(*name, strategy);
    if (!fault.empty())
      return emitOpError() << "has strategy '" << *name << "', which " << fault;
  }
  if (getMembers().empty())
    return emitOpError("has no members");
  if (!getTrainable() && getStates() != 0)
    return emitOpError() << "is frozen, but has " << getStates()
                         << " optimizer states";
  if (!getTrainable() && (getGroup() || getAverage()))
    return emitOpError() << "is frozen, but has "
                         << (getGroup() ? "a group" : "an average");
  if (getAverage() && getStates() == 0)
    return emitOpError("has an average, but no states; it is the last one");
  if (failed(verifyOptimizer(*this)))
    return failure();
  // Members are in ascending order and do not overlap; gaps are padding up to
  // the alignment. The last member ends the layout, so nothing is hidden behind
  // it.
  int64_t end = 0;
  for (auto member : getMembers().getAsRange<MemberAttr>()) {
    StringRef name = member.getParameter().getValue();
    int64_t alignment = holdsBytes() ? kByteAlignment : kMemberAlignment;
    if (member.getOffset() % alignment)
      return emitOpError() << "member '" << name << "' has offset "
                           << member.getOffset()
                           << ", which is not a multiple of " << alignment;
    if (member.getOffset() < end)
      return emitOpError() << "member '" << name << "' has offset "
                           << member.getOffset()
                           << ", but the previous member ends at " << end;
    if (member.getElements() <= 0)
      return emitOpError() << "member '" << name << "' is empty";
    end = member.getOffset() + member.getElements();
  }
  if (end != static_cast<int64_t>(getElements()))
    return emitOpError() << "has " << getElements()
                         << " elements, but its last member ends at " << end;
  for (auto kind : getWhole().getAsRange<StringAttr>())
    if (!llvm::is_contained({"compute", "gradient", "master", "state"},
                            kind.getValue()))
      return emitOpError()
             << "cannot keep '" << kind.getValue()
             << "' replicated; expected compute, gradient, master or state";
  if (failed(verifyOffloaded(*this)))
    return failure();
  // A layout that every rank has whole is never gathered.
  if (getSecondary() && keepsWhole(*this, "compute"))
    return emitOpError("has a secondary shard, but keeps 'compute' replicated");
  if (std::optional<Type> wire = getWire();
      wire && !wire->isInteger(8) && !isa<Float8E4M3FNType>(*wire))
    return emitOpError() << "cannot be gathered as blocks of " << *wire
                         << "; expected i8 or f8E4M3FN";
  if (getWire() && keepsWhole(*this, "master"))
    return emitOpError("is gathered in blocks, but keeps 'master' replicated");
  CompressionAttr compression = getCompressionAttr();
  if (!compression)
    return success();
  if (!getTrainable())
    return emitOpError("is frozen, but compresses its gradients");
  const CompressionInfo *info = findCompression(compression.getKind());
  if (!info)
    return emitOpError("has a compression of the unknown kind '")
           << compression.getKind() << "'";
  if (std::string fault = info->faultOf(compression.getAmount(), end);
      !fault.empty())
    return emitOpError(fault);
  return success();
}

// Checks the bounds only. VerifySymbols.cpp checks that the member lies at this
// place of its layout.
LogicalResult ViewOp::verify() {
  auto flat = cast<RankedTensorType>(getFlat().getType());
  auto view = cast<RankedTensorType>(getResult().getType());
  bool ofBytes = flat.getElementType().isUnsignedInteger(8);
  if (flat.getElementType() != view.getElementType() && !ofBytes)
    return emitOpError() << "cannot view " << flat << " as " << view;
  int64_t offset = getOffset();
  int64_t size = ofBytes ? nn::tensorBytes(view) : view.getNumElements();
  if (flat.getRank() != 1 || offset < 0 ||
      offset + size > flat.getNumElements())
    return emitOpError() << "views elements [" << offset << ", "
                         << offset + size << "), which are out of bounds for "
                         << flat;
  // The address must be that of an element.
  if (ofBytes && offset % nn::elementBytes(view))
    return emitOpError() << "views " << view << " at byte " << offset
                         << ", which is not aligned to its elements";
  return success();
}

// Only what was gathered or fetched is freed: its memory returns to the arena.
// The parts of a rank live as long as the program.
LogicalResult FreeOp::verify() {
  Operation *source = getFlat().getDefiningOp();
  if (!source || !source->hasTrait<MovedBySchedule>() ||
      !hasEffect<MemoryEffects::Allocate>(source))
    return emitOpError(
        "frees a value that is not the result of an all_gather or a fetch");
  return success();
}

// A secondary shard is kept of what all ranks sent, so a gather that reads it
// has nothing to keep.
template <typename OpTy> static LogicalResult verifyMarks(OpTy gather) {
  if (gather.getKeepSecondary() && gather.getFromSecondary())
    return gather.emitOpError("both keeps secondary shards and reads them");
  return success();
}

LogicalResult AllGatherOp::verify() { return verifyMarks(*this); }

LogicalResult AllGatherStartOp::verify() { return verifyMarks(*this); }

LogicalResult AllGatherWaitOp::verify() {
  if (!getToken().getDefiningOp<AllGatherStartOp>())
    return emitOpError(
        "waits for a token that all_gather_start did not produce");
  return success();
}

// A wait has no attribute of its own for its layouts; they are those of the
// start. An op with a wrong token has none here, and `verify` reports it.
SmallVector<FlatSymbolRefAttr> AllGatherWaitOp::getLayoutRefs() {
  auto start = getToken().getDefiningOp<AllGatherStartOp>();
  return start ? start.getLayoutRefs() : SmallVector<FlatSymbolRefAttr>();
}

SmallVector<FlatSymbolRefAttr> ReduceScatterWaitOp::getLayoutRefs() {
  auto start = getToken().getDefiningOp<ReduceScatterStartOp>();
  return start ? start.getLayoutRefs() : SmallVector<FlatSymbolRefAttr>();
}

LogicalResult ReduceScatterWaitOp::verify() {
  if (!getToken().getDefiningOp<ReduceScatterStartOp>())
    return emitOpError(
        "waits for a token that reduce_scatter_start did not produce");
  return success();
}

// The region of an op of @update is a scalar program, of (parameter, gradient,
// states…, lr, step, decay) and `sums` more f64. The data are f32; lr, step and
// decay are f64, so that bias corrections such as 1 - beta^step keep their
// digits. The program is run once per element, in any order and in vectors.
// With factors the element's average of squares follows the gradient, with
// updates the element's update; `number` says so. With `word` a random i32 is
// the last argument. The parameter may be of type `narrow`, too.
static LogicalResult verifyProgram(Operation *op, Block &body, unsigned sums,
                                   bool number, bool word, Type yielded,
                                   Type narrow = Type()) {
  unsigned count = body.getNumArguments() - word;
  if (count < 5 + sums + number)
    return op->emitOpError("region must have at least the arguments parameter, "
                           "gradient, lr, step and decay");
  for (auto [i, argument] :
       llvm::enumerate(body.getArguments().take_front(count))) {
    bool scalar = i + 3 + sums < count;
    if (i == 0 && argument.getType() == narrow)
      continue;
    if (scalar ? !argument.getType().isF32() : !argument.getType().isF64())
      return op->emitOpError()
             << "argument " << i << " of the region has type "
             << argument.getType() << ", expected " << (scalar ? "f32" : "f64");
  }
  Operation *yield = body.getTerminator();
  for (Type type : yield->getOperandTypes())
    if (type != yielded)
      return yield->emitOpError()
             << "has a value of type " << type << ", expected " << yielded;
  for (Operation &inner : body.without_terminator())
    if (!isMemoryEffectFree(&inner) || inner.getNumRegions() != 0)
      return inner.emitOpError(
          "is not a scalar computation; the region of an optimizer may contain "
          "only ops without side effects or regions");
  return success();
}

// Only the op that computes the sums knows how many a member has, so their
// number follows from the region.
LogicalResult OptimizerOp::verify() {
  Block &body = getBody().front();
  bool hasSums = static_cast<bool>(getSums());
  if (hasSums != getFirst().has_value())
    return emitOpError("has 'sums' without 'first', or 'first' without 'sums'");
  // An optimizer's region yields the new parameter and its new states:
  // arguments less gradient, lr, step, decay, sums and the number.
  unsigned values = body.getTerminator()->getNumOperands();
  unsigned count = body.getNumArguments() - takesWord();
  auto sums = static_cast<unsigned>(std::max<int64_t>(getSumsPerMember(), 0));
  bool hasFactors = static_cast<bool>(getFactors());
  if (hasFactors != getFirstFactor().has_value())
    return emitOpError("has 'factors' without 'first_factor', or "
                       "'first_factor' without 'factors'");
  // The assembly could not tell the types of the two apart.
  if (hasFactors && !hasSums)
    return emitOpError("has 'factors' without 'sums'");
  if (hasFactors && getUpdates())
    return emitOpError("has both 'factors' and 'updates'");
  if (failed(verifyProgram(*this, body, sums, takesNumbers(), takesWord(),
                           Float32Type::get(getContext()))))
    return failure();
  unsigned needed = count - sums - 4 - takesNumbers();
  if (hasSums && sums == 0)
    return emitOpError("has 'sums', but its region takes none");
  if (values != needed)
    return body.getTerminator()->emitOpError()
           << "has " << values
           << " values, but the parameter and its states need " << needed;
  if (!takesWord())
    return success();
  auto rounding = body.getTerminator()
                      ->getOperand(0)
                      .getDefiningOp<nn::RoundStochasticOp>();
  if (!rounding || rounding.getWord() != body.getArguments().back())
    return body.getTerminator()->emitOpError(
        "yields a parameter that is not an 'nn.round_stochastic' with the "
        "region's word");
  return success();
}

// Readers of the program (codegen) and the runtime need not check again.
LogicalResult LossWeightOp::verify() {
  for (std::optional<APFloat> number : {getAtLeast(), getPlus()})
    if (number && !(number->isFinite() && !number->isNegative()))
      return emitOpError("needs numbers that are finite and not negative");
  if (getPerMicrobatch() && !getAtLeast() && !getPlus())
    return emitOpError("is 'per_microbatch' without 'at_least' or 'plus'");
  if (getCounts().empty())
    return emitOpError("has no region");
  for (Region &region : getCounts()) {
    Block &body = region.front();
    if (body.getNumArguments() != getInputs().size())
      return emitOpError() << "names " << getInputs().size()
                           << " inputs, but its region takes "
                           << body.getNumArguments();
    for (Operation &op : body.without_terminator())
      if (!weightStepOf(&op))
        return op.emitOpError("cannot stand in an fsdp.loss_weight");
    auto yield = dyn_cast<YieldOp>(body.getTerminator());
    auto type = yield && yield.getValues().size() == 1
                    ? dyn_cast<RankedTensorType>(yield.getValues()[0].getType())
                    : RankedTensorType();
    if (!type || type.getRank() != 0)
      return emitOpError("does not yield one scalar tensor");
  }
  return success();
}

LogicalResult MemberSumsOp::verify() {
  Block &body = getBody().front();
  if (failed(verifyProgram(*this, body, 0, static_cast<bool>(getFactors()),
                           /*word=*/false, Float64Type::get(getContext()),
                           BFloat16Type::get(getContext()))))
    return failure();
  if (getSumsPerMember() == 0)
    return body.getTerminator()->emitOpError("has no value to sum");
  if (getSumsPerMember() > mostSums)
    return body.getTerminator()->emitOpError()
           << "has " << getSumsPerMember() << " values to sum; the most are "
           << mostSums;
  return success();
}

} // namespace fsdpc::fsdp

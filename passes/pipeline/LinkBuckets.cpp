// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Entry functions meet nowhere: streams join at the end of each, events are
// numbered within each, and nothing in the arena outlives one. So functions
// that were planned and verified apart stay right beside each other, in an
// arena as large as the largest of theirs. Values that outlive a microbatch lie
// behind symbols, which must be the same in all buckets.
#include "passes/pipeline/LinkBuckets.h"

#include "compiler/dialects/fsdp/Buckets.h"
#include "compiler/dialects/fsdp/Offloads.h"
#include "compiler/dialects/fsdp/Recomputed.h"
#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/rt/RTDialect.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::pipeline;

namespace {

// Returns true for what only entry functions refer to: kernels and constants.
// Two of them with equal text are the same, whatever their names are.
bool isPart(Operation &op) {
  return op.hasAttr(nn::NNDialect::kKernelAttr) || isa<rt::ConstantOp>(op);
}

// Returns the text of a part without its name and locations.
std::string textOf(Operation &part) {
  Operation *copy = part.clone();
  SymbolTable::setSymbolName(copy, "part");
  std::string text;
  llvm::raw_string_ostream stream(text);
  copy->print(stream, OpPrintingFlags().useLocalScope().elideLargeElementsAttrs(
                          /*largeElementLimit=*/1 << 30));
  copy->erase();
  return text;
}

// Compares two symbols, but for where @update has its temporaries in the arena:
// its places are right in every bucket's plan. Ops of a unit may run again in
// one bucket only, which the entry functions already say.
bool areEqual(Operation &one, Operation &other) {
  Operation *copies[] = {one.clone(), other.clone()};
  for (Operation *copy : copies) {
    copy->removeAttr(fsdp::kRecomputedAttr);
    copy->walk([](rt::PointerOp pointer) {
      if (pointer.getSpace() == rt::Space::arena)
        pointer.setOffset(0);
      if (pointer.getAt())
        pointer.setAt(0);
    });
  }
  bool equal = OperationEquivalence::isEquivalentTo(
      copies[0], copies[1], OperationEquivalence::IgnoreLocations);
  for (Operation *copy : copies)
    copy->erase();
  return equal;
}

// Returns an entry of the plan of the arena, or 0.
int64_t arenaEntry(ModuleOp module, StringRef name) {
  auto arena = module->getAttrOfType<DictionaryAttr>("fsdp.arena");
  auto bytes = arena ? arena.getAs<IntegerAttr>(name) : IntegerAttr();
  return bytes ? bytes.getInt() : 0;
}

// Adds the modules of further buckets to that of the first one.
class Linker {
public:
  Linker(ModuleOp linked, ArrayRef<std::string> names)
      : linked(linked), symbols(linked), names(names) {
    for (Operation &op : *linked.getBody())
      if (isPart(op))
        parts[textOf(op)] = SymbolTable::getSymbolName(&op);
    for (auto input : linked.getOps<rt::InputOp>())
      types[input.getSymNameAttr()] = {input.getTypeAttr()};
  }

  // Consumes `module`.
  LogicalResult add(ModuleOp module, size_t bucket);
  // Writes what all buckets together need.
  LogicalResult finish();

private:
  void moveParts(ModuleOp module);
  LogicalResult moveEntry(ModuleOp module, StringRef entry, size_t bucket);
  LogicalResult moveWeights(ModuleOp module, size_t bucket);
  LogicalResult checkShared(Operation &op, size_t bucket);
  LogicalResult checkMissing(ModuleOp module, size_t bucket);
  LogicalResult checkOutputs(ModuleOp module, size_t bucket);
  void takeArena(ModuleOp module);
  void takeLarger(ModuleOp module);
  InFlightDiagnostic differ(Operation &op, size_t bucket) {
    return op.emitError("bucket '")
           << names[bucket] << "' and bucket '" << names[0] << "' differ in ";
  }
  LogicalResult refuseLasting(Operation &op, size_t bucket) {
    return differ(op, bucket)
           << "'" << SymbolTable::getSymbolName(&op).getValue()
           << "', which outlives a microbatch; compile a program for each";
  }

  ModuleOp linked;
  SymbolTable symbols;
  ArrayRef<std::string> names;
  llvm::StringMap<StringAttr> parts;       // names in `linked`, by text
  DenseMap<Attribute, StringAttr> renamed; // of the module that is added
  llvm::MapVector<StringAttr, SmallVector<Attribute>> types; // of inputs
};

// Kernels and constants that are in the program already are used from there.
// Others move, under a new name if theirs is taken.
void Linker::moveParts(ModuleOp module) {
  renamed.clear();
  for (Operation &op : llvm::make_early_inc_range(*module.getBody())) {
    if (!isPart(op))
      continue;
    StringAttr name = SymbolTable::getSymbolName(&op);
    auto [entry, isNew] = parts.try_emplace(textOf(op));
    if (isNew) {
      op.remove();
      entry->second = symbols.insert(&op);
    } else {
      op.erase();
    }
    renamed[name] = entry->second;
  }
  AttrTypeReplacer replacer;
  replacer.addReplacement(
      [&](FlatSymbolRefAttr symbol) -> std::optional<Attribute> {
        auto found = renamed.find(symbol.getAttr());
        if (found == renamed.end())
          return std::nullopt;
        return FlatSymbolRefAttr::get(found->second);
      });
  for (func::FuncOp entry : fsdp::entriesOf(module))
    replacer.recursivelyReplaceElementsIn(entry);
}

// A dump may lack @evaluate in all buckets.
LogicalResult Linker::moveEntry(ModuleOp module, StringRef entry,
                                size_t bucket) {
  auto function = module.lookupSymbol<func::FuncOp>(entry);
  if (!function)
    return success();
  std::string name = fsdp::nameInBucket(entry, bucket);
  if (symbols.lookup(name))
    return function.emitError("the name '") << name << "' is taken";
  function->remove();
  function.setSymName(name);
  symbols.insert(function);
  return success();
}

LogicalResult Linker::checkShared(Operation &op, size_t bucket) {
  StringAttr name = SymbolTable::getSymbolName(&op);
  Operation *first = symbols.lookup(name);
  if (!first)
    return differ(op, bucket) << "'" << name.getValue() << "'";
  if (auto input = dyn_cast<rt::InputOp>(op)) {
    auto other = dyn_cast<rt::InputOp>(first);
    if (!other || input.getBound() != other.getBound() ||
        input.getIgnored() != other.getIgnored())
      return differ(op, bucket)
             << "the values of input '" << name.getValue() << "'";
    types[name].push_back(input.getTypeAttr());
    return success();
  }
  return areEqual(op, *first) ? success() : refuseLasting(op, bucket);
}

// The region of a weight reads the shapes of its bucket, so it joins those of
// the buckets before it.
LogicalResult Linker::moveWeights(ModuleOp module, size_t bucket) {
  auto own = llvm::to_vector(module.getOps<fsdp::LossWeightOp>());
  auto first = llvm::to_vector(linked.getOps<fsdp::LossWeightOp>());
  if (own.size() != first.size())
    return module.emitError("bucket '")
           << names[bucket] << "' and bucket '" << names[0]
           << "' differ in the weights of the loss's means; compile a program "
              "for each, or with '--loss-mean=microbatch'";
  for (auto [weight, before] : llvm::zip_equal(own, first)) {
    if (weight->getAttrDictionary() != before->getAttrDictionary())
      return refuseLasting(*weight, bucket);
    OperationState state(before->getLoc(), before->getName());
    state.addAttributes(before->getAttrs());
    for (Region &region : before.getCounts())
      state.addRegion()->takeBody(region);
    state.addRegion()->takeBody(weight.getCounts()[0]);
    symbols.remove(before);
    OpBuilder builder(before);
    Operation *joined = builder.create(state);
    before->erase();
    weight->erase();
    symbols.insert(joined);
  }
  return success();
}

// A parameter that one bucket does not use would be updated with the gradient
// of another one's microbatch. Inputs have a message of their own (finish).
LogicalResult Linker::checkMissing(ModuleOp module, size_t bucket) {
  SymbolTable own(module);
  for (Operation &op : *linked.getBody())
    if (!isPart(op) && !isa<fsdp::LossWeightOp>(op) &&
        !isa<func::FuncOp, rt::InputOp>(op) &&
        !own.lookup(SymbolTable::getSymbolName(&op)))
      return refuseLasting(op, bucket);
  return success();
}

// The program keeps one tensor per output.
LogicalResult Linker::checkOutputs(ModuleOp module, size_t bucket) {
  llvm::DenseSet<Attribute> known;
  linked.walk([&](rt::ReportOutputOp op) { known.insert(op.getPlanAttr()); });
  WalkResult result = module.walk([&](rt::ReportOutputOp op) {
    if (known.contains(op.getPlanAttr()))
      return WalkResult::advance();
    differ(*op.getOperation(), bucket)
        << "the shape of output '" << op.getPlan().getTitle()
        << "'; '--keep-output' takes one shape for all buckets";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

// The bucket with the largest arena also stands for the predicted step, and for
// what a limit has computed again. The file of activations has room for each.
void Linker::takeArena(ModuleOp module) {
  int64_t offloaded = std::max(arenaEntry(module, "offloaded"),
                               arenaEntry(linked, "offloaded"));
  if (arenaEntry(module, "bytes") > arenaEntry(linked, "bytes"))
    takeLarger(module);
  if (offloaded == 0)
    return;
  NamedAttrList arena(linked->getAttrOfType<DictionaryAttr>("fsdp.arena"));
  arena.set("offloaded",
            Builder(linked.getContext()).getI64IntegerAttr(offloaded));
  linked->setAttr("fsdp.arena", arena.getDictionary(linked.getContext()));
}

void Linker::takeLarger(ModuleOp module) {
  for (StringRef name :
       {StringRef("fsdp.arena"), StringRef(fsdp::kOffloadedAttr),
        StringRef(fsdp::FSDPDialect::kPredictedAttr)})
    if (Attribute value = module->getAttr(name))
      linked->setAttr(name, value);
    else
      linked->removeAttr(name);
  for (auto unit : module.getOps<fsdp::UnitOp>()) {
    Operation *own = symbols.lookup(unit.getSymName());
    own->removeAttr(fsdp::kRecomputedAttr);
    if (std::optional<fsdp::Recomputed> again = fsdp::recomputedOf(unit))
      fsdp::setRecomputed(cast<fsdp::UnitOp>(own), *again);
  }
}

LogicalResult Linker::add(ModuleOp module, size_t bucket) {
  if (failed(checkOutputs(module, bucket)))
    return failure();
  moveParts(module);
  for (StringRef entry :
       {StringRef(fsdp::FSDPDialect::kMicrobatch), StringRef(fsdp::kEvaluate)})
    if (failed(moveEntry(module, entry, bucket)))
      return failure();
  if (failed(moveWeights(module, bucket)))
    return failure();
  for (Operation &op : *module.getBody())
    if (failed(checkShared(op, bucket)))
      return failure();
  if (failed(checkMissing(module, bucket)))
    return failure();
  takeArena(module);
  return success();
}

LogicalResult Linker::finish() {
  Builder builder(linked.getContext());
  Manifest manifest;
  manifest.buckets = names;
  for (auto input : linked.getOps<rt::InputOp>()) {
    Input &described = manifest.inputs.emplace_back();
    described.name = fsdp::nameOfSymbol(input.getSymName()).str();
    ArrayRef<Attribute> own = types[input.getSymNameAttr()];
    if (own.size() != names.size())
      return input.emitError("input '")
             << described.name << "' affects the loss in some buckets only; "
             << "compile a program for each";
    auto typeOf = [](Attribute type) {
      return cast<RankedTensorType>(cast<TypeAttr>(type).getValue());
    };
    auto isSmaller = [&](Attribute a, Attribute b) {
      return typeOf(a).getNumElements() < typeOf(b).getNumElements();
    };
    auto largest = cast<TypeAttr>(*llvm::max_element(own, isSmaller));
    input.setTypeAttr(largest);
    input.setBucketTypesAttr(builder.getArrayAttr(own));
    described.shape = typeOf(largest).getShape().vec();
    for (Attribute type : own)
      described.bucketShapes.push_back(typeOf(type).getShape().vec());
  }
  if (Status checked = checkBuckets(manifest); !checked)
    return linked.emitError(checked.error().message);
  SmallVector<StringRef> texts(names.begin(), names.end());
  linked->setAttr(fsdp::kBucketsAttr, builder.getStrArrayAttr(texts));
  return success();
}

} // namespace

LogicalResult
fsdpc::pipeline::linkBuckets(std::vector<OwningOpRef<ModuleOp>> &modules,
                             const std::vector<std::string> &names) {
  Linker linker(*modules.front(), names);
  for (size_t bucket = 1; bucket < modules.size(); ++bucket)
    if (failed(linker.add(*modules[bucket], bucket)))
      return failure();
  return linker.finish();
}

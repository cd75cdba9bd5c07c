// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The discardable attributes of the fsdp dialect. Some hold the state of the
// compile (options, the last pass, sizes that a later pass prints), others what
// passes found out about an op (its unit, its cost, its place in the arena).
// FSDPBase.td describes each.
#include "compiler/dialects/nn/DiscardableAttributes.h"
#include "compiler/dialects/fsdp/CostNote.h"
#include "compiler/dialects/fsdp/F32Islands.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Offloads.h"
#include "compiler/dialects/fsdp/Recomputed.h"
#include "compiler/dialects/fsdp/Tokens.h"
#include "compiler/options/OptionTable.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc::nn;

namespace fsdpc::fsdp {
namespace {

// Predicates over attribute values, one per form in the tables below. They
// accept only what a pass writes, so a reader need not check again.
bool isSymbol(Attribute value) { return isa<FlatSymbolRefAttr>(value); }

bool isDictionary(Attribute value) { return isa<DictionaryAttr>(value); }

bool isInFunction(Operation *op) {
  return bool(op->getParentOfType<FunctionOpInterface>());
}

// Bytes from the start of the arena, one per result; -1 for a result without
// memory.
bool isOffsets(Attribute value) {
  auto array = dyn_cast<DenseI64ArrayAttr>(value);
  return array && llvm::all_of(array.asArrayRef(),
                               [](int64_t offset) { return offset >= -1; });
}

bool isI64(Attribute value) {
  auto number = dyn_cast<IntegerAttr>(value);
  return number && number.getType().isInteger(64);
}

// Counts by name, such as how often each composite was recognised.
bool areCounts(Attribute value) {
  auto counts = dyn_cast<DictionaryAttr>(value);
  return counts && llvm::all_of(counts, [](NamedAttribute entry) {
           return isCount(entry.getValue());
         });
}

// Returns true for what plan-memory writes. No key is required, because tests
// give the size alone.
bool isArena(Attribute value) {
  auto arena = dyn_cast<DictionaryAttr>(value);
  return arena && llvm::all_of(arena, [](NamedAttribute entry) {
           StringRef key = entry.getName();
           return key == "reused"
                      ? isStringArray(entry.getValue())
                      : llvm::is_contained({"bytes", "lower_bound", "gathered",
                                            "gradients", "activations",
                                            "offloaded"},
                                           key) &&
                            isCount(entry.getValue());
         });
}

// One term of the bytes communicated: what is sent, how much, in which type,
// and how often; of which elements, if layouts differ in strategy; and over
// which ranks, if not over all.
bool isTerm(Attribute value) {
  auto term = dyn_cast<DictionaryAttr>(value);
  if (!term)
    return false;
  auto over = term.getAs<StringAttr>("over");
  constexpr StringLiteral levels[] = {"group", "groups", "each", "owners",
                                      "group owners"};
  if (over && !llvm::is_contained(levels, over.getValue()))
    return false;
  bool named = bool(term.getAs<StringAttr>("elements"));
  // Four keys are fixed; `elements` and `over` are optional. Counting refuses a
  // misspelt one.
  if (term.size() != 4u + named + bool(over))
    return false;
  auto bytes = term.get("bytes");
  auto per = term.getAs<StringAttr>("per");
  return term.getAs<StringAttr>("what") && bytes && isCount(bytes) &&
         term.getAs<StringAttr>("type") && per &&
         (per == "microbatch" || per == "step");
}

// Returns true for what writeCommunication writes.
bool isCommunication(Attribute value) {
  auto whole = dyn_cast<DictionaryAttr>(value);
  Attribute parts = whole ? whole.get("parts") : Attribute();
  if (!whole || whole.size() != (parts ? 4 : 3))
    return false;
  Attribute trainable = whole.get("trainable"), frozen = whole.get("frozen");
  auto terms = whole.getAs<ArrayAttr>("terms");
  return trainable && isCount(trainable) && frozen && isCount(frozen) &&
         terms && llvm::all_of(terms, isTerm) && (!parts || areCounts(parts));
}

bool areStrings(Attribute value) {
  auto array = dyn_cast<ArrayAttr>(value);
  return array && llvm::all_of(array, llvm::IsaPred<StringAttr>);
}

// As schedule-prefetch writes it where --persist is given.
bool isPersist(Attribute value) {
  auto times = dyn_cast<DictionaryAttr>(value);
  return times && times.size() == 2 && times.get("exposed_us") &&
         times.get("gathered_us") &&
         llvm::all_of(times, [](NamedAttribute entry) {
           return isDuration(entry.getValue());
         });
}

// As schedule-prefetch writes it where activations can be offloaded.
bool isOffloaded(Attribute value) {
  auto entries = dyn_cast<DictionaryAttr>(value);
  auto has = [&](StringRef name, bool (*isLegal)(Attribute)) {
    Attribute entry = entries.get(name);
    return entry && isLegal(entry);
  };
  auto areSymbols = [](Attribute list) {
    auto array = dyn_cast<ArrayAttr>(list);
    return array && llvm::all_of(array, isSymbol);
  };
  return entries && entries.size() == 7 && has("pieces", isCount) &&
         has("of_pieces", isCount) && has("bytes", isCount) &&
         has("of_bytes", isCount) && has("copy_us", isDuration) &&
         has("exposed_us", isDuration) && has("units", areSymbols);
}

// Returns true for what verify-schedule writes: lists of equal length.
bool isPrediction(Attribute value) {
  auto lists = dyn_cast<DictionaryAttr>(value);
  auto ranks = lists ? lists.getAs<DenseI64ArrayAttr>("ranks") : nullptr;
  if (!ranks || lists.size() != 3)
    return false;
  auto areTimes = [&](StringRef name) {
    auto times = lists.getAs<DenseF64ArrayAttr>(name);
    return times && times.size() == ranks.size() &&
           llvm::all_of(times.asArrayRef(),
                        [](double us) { return std::isfinite(us) && us >= 0; });
  };
  return areTimes("microbatch_us") && areTimes("update_us") &&
         llvm::all_of(ranks.asArrayRef(), [](int64_t n) { return n > 0; });
}

// The notes of a short dump, which readDump turns into estimates again.
bool isCostNote(Attribute value) {
  auto note = dyn_cast<StringAttr>(value);
  return note && CostNote::parse(note.getValue());
}

bool isTimeNote(Attribute value) {
  auto note = dyn_cast<StringAttr>(value);
  return note && parseTime(note.getValue());
}

bool isWait(Operation *op) { return bool(awaitedToken(op)); }

// The places where an attribute may stand, with how an error describes them.
constexpr AttributePlace modules = {"a module", isModule},
                         ops = {"an op", isAnyOp}, waits = {"a wait", isWait};
constexpr AttributeForm text = {"a string", isString},
                        count = {"an i64 of 0 or more", isCount},
                        time = {"an f64 of 0 or more", isDuration};

// A dump may be edited, and passes read these attributes without a check of
// their own. An attribute of the prefix that is missing here is refused.
constexpr DiscardableAttribute opTable[] = {
    {"fsdp.done", modules, text},
    {"fsdp.options", modules, {"a dictionary", isDictionary}},
    {"fsdp.recognised", modules, {"a dictionary of i64 counts", areCounts}},
    {kF32IslandsAttr, modules, {"a dictionary of i64 counts", areCounts}},
    {"fsdp.communication",
     modules,
     {"a dictionary of 'trainable', 'frozen' and 'terms'", isCommunication}},
    {"fsdp.persist",
     modules,
     {"a dictionary of f64 'exposed_us' and 'gathered_us'", isPersist}},
    {kOffloadedAttr,
     modules,
     {"a dictionary of i64 'pieces', 'of_pieces', 'bytes' and 'of_bytes', f64 "
      "'copy_us' and 'exposed_us', and symbols 'units'",
      isOffloaded}},
    {"fsdp.predicted",
     modules,
     {"a dictionary of the arrays 'ranks', 'microbatch_us' and 'update_us', of "
      "equal length",
      isPrediction}},
    {"fsdp.schedule_hash", modules, text},
    {"fsdp.arena",
     modules,
     {"a dictionary of i64 'bytes', 'lower_bound', 'gathered', 'gradients' and "
      "'activations', also 'offloaded', and strings 'reused'",
      isArena}},
    {"fsdp.buckets", modules, {"an array of strings", areStrings}},
    {"fsdp.unit", ops, {"a symbol", isSymbol}},
    {"fsdp.backward", ops, {"a unit attribute", isUnit}},
    {"fsdp.recompute",
     {"an op of a function", isInFunction},
     {"a unit attribute", isUnit}},
    {"fsdp.recomputed",
     {"an fsdp.unit", [](Operation *op) { return isa<UnitOp>(op); }},
     {"a dictionary of i64 'of', 'ops' and 'us'", isRecomputed}},
    {"fsdp.keep_f32", ops, {"a unit attribute", isUnit}},
    {"fsdp.unsummed",
     {"a layout", [](Operation *op) { return isa<LayoutOp>(op); }},
     {"a unit attribute", isUnit}},
    {"fsdp.hook", ops, count},
    {"fsdp.flops", ops, count},
    {"fsdp.bytes", ops, count},
    {"fsdp.cost_us", ops, time},
    {kCostNoteAttr,
     ops,
     {"a text such as '1.5 us, 1024 bytes, 0 flops'", isCostNote}},
    {"fsdp.exposed_us", waits, time},
    {kExposedNoteAttr, waits, {"a text such as '1.5 us'", isTimeNote}},
    {"fsdp.offsets",
     ops,
     {"an i64 array of offsets, or -1 for a result without memory", isOffsets}},
};

// On arguments of @microbatch, where finishInputs (frontends/onnx) writes them,
// and of a user's optimizer.
constexpr DiscardableAttribute argumentTable[] = {
    {"fsdp.input", ops, text},
    {"fsdp.bound", ops, count},
    {"fsdp.ignored", ops, {"an i64", isI64}},
    {"fsdp.state", ops, text},
};

// Runs the checks of the command line on the attribute, so that no combination
// enters through a dump that a flag would refuse.
LogicalResult verifyOptions(Operation *module, DictionaryAttr attribute) {
  CompileOptions options;
  std::string error = readOptions(attribute, options);
  if (error.empty())
    error = checkOptions(options);
  if (error.empty())
    return success();
  return emitError(module->getLoc())
         << "attribute '" << CompileOptions::kAttribute << "': " << error;
}

} // namespace

LogicalResult FSDPDialect::verifyOperationAttribute(Operation *op,
                                                    NamedAttribute attribute) {
  if (failed(verifyDiscardable(op, attribute, opTable)))
    return failure();
  if (attribute.getName() == CompileOptions::kAttribute)
    return verifyOptions(op, cast<DictionaryAttr>(attribute.getValue()));
  return success();
}

LogicalResult FSDPDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                    unsigned,
                                                    NamedAttribute attribute) {
  return verifyArgumentAttribute(op, attribute, argumentTable);
}

} // namespace fsdpc::fsdp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds the manifest of a program from the final module.
// `fsdp::describeModule` has filled in what earlier phases need as well
// (layouts, options); this file adds what only the final module knows: the
// sizes of the arena and of constants, where initial values lie, the library
// plans, and the two hashes by which ranks find out that they do not run the
// same program.
#include "compiler/codegen/ManifestBuilder.h"

#include "compiler/analysis/RankMemory.h"
#include "compiler/codegen/CallTables.h"
#include "compiler/codegen/SourcePaths.h"
#include "compiler/dialects/fsdp/Buckets.h"
#include "compiler/dialects/fsdp/ModuleManifest.h"
#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/rt/Plans.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using fsdp::dtypeName;

// The first 8 bytes of the SHA-256 digest, in hexadecimal.
static std::string hash(StringRef text) {
  llvm::SHA256 sha;
  sha.update(text);
  auto digest = sha.final();
  return llvm::toHex(ArrayRef<uint8_t>(digest).take_front(8),
                     /*LowerCase=*/true);
}

// Locations and folders of weights are left out: they do not change what the
// program computes. Large constants are printed in full, since they do.
std::string fsdpc::codegen::hashProgram(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  withoutFolders(module)->print(
      stream, OpPrintingFlags().useLocalScope().elideLargeElementsAttrs(
                  /*largeElementLimit=*/1 << 30));
  return hash(text);
}

// Hashes the order in which collectives are enqueued, which is all work of the
// streams other than compute. If two ranks disagreed on it, they would wait for
// each other in different collectives.
static std::string hashSchedule(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.walk([&](Operation *op) {
    auto command = dyn_cast<rt::CommandOpInterface>(op);
    if (command && command.isWork() &&
        command.getStream() != rt::Stream::compute) {
      stream << op->getName();
      if (Attribute layouts = op->getAttr("layouts"))
        stream << layouts;
      stream << '\n';
    }
  });
  return hash(text);
}

// Says where the initial value of a parameter or buffer comes from: a file, the
// executable itself, a rule such as normal(0, 0.02), or nowhere.
template <typename SymbolOp>
static Source sourceOf(SymbolOp op, const ProgramTables &tables) {
  auto tensor = cast<RankedTensorType>(op.getType());
  Source source;
  source.kind = "none";
  source.dtype = dtypeName(tensor.getElementType());
  if (fsdp::SourceAttr file = op.getSourceAttr()) {
    source.kind = "file";
    source.file = file.getFile();
    source.offset = file.getOffset();
    source.length = file.getLength();
    source.hash = file.getHash();
    source.dtype = file.getDtype();
  } else if (op.getValue()) {
    source.kind = "embedded";
    source.offset = tables.weightOffsets.lookup(op.getSymNameAttr());
    source.length = nn::tensorBytes(tensor);
  } else if (std::optional<StringRef> rule = op.getRule()) {
    source.kind = "rule";
    source.rule = rule->str();
  }
  return source;
}

static void addSources(ModuleOp module, const ProgramTables &tables,
                       Manifest &manifest) {
  SymbolTable symbols(module);
  for (Layout &layout : manifest.layouts)
    for (Member &member : layout.members)
      member.source = sourceOf(
          symbols.lookup<fsdp::ParameterOp>(fsdp::symbolOfTensor(member.name)),
          tables);
  for (Buffer &buffer : manifest.buffers)
    buffer.source = sourceOf(
        symbols.lookup<fsdp::BufferOp>(fsdp::symbolOfTensor(buffer.name)),
        tables);
}

// Describes an input, with the range of its values if it selects rows or
// classes.
static Input inputOf(rt::InputOp op) {
  auto type = cast<RankedTensorType>(op.getType());
  Input input;
  input.name = fsdp::nameOfSymbol(op.getSymName()).str();
  input.shape = type.getShape().vec();
  input.dtype = dtypeName(type.getElementType());
  input.bound = op.getBound().value_or(0);
  if (ArrayAttr types = op.getBucketTypesAttr())
    for (auto bucket : types.getAsValueRange<TypeAttr>())
      input.bucketShapes.push_back(
          cast<RankedTensorType>(bucket).getShape().vec());
  input.hasIgnored = op.getIgnored().has_value();
  input.ignored = op.getIgnored().value_or(0);
  return input;
}

// Copies what verify-schedule has written into `fsdp.predicted`.
static void addPredictions(ModuleOp module, Manifest &manifest) {
  auto lists =
      module->getAttrOfType<DictionaryAttr>(fsdp::FSDPDialect::kPredictedAttr);
  if (!lists)
    return;
  for (auto [ranks, microbatch, update] : llvm::zip_equal(
           lists.getAs<DenseI64ArrayAttr>("ranks").asArrayRef(),
           lists.getAs<DenseF64ArrayAttr>("microbatch_us").asArrayRef(),
           lists.getAs<DenseF64ArrayAttr>("update_us").asArrayRef()))
    manifest.predictions.push_back({ranks, microbatch, update});
}

Manifest fsdpc::codegen::buildManifest(ModuleOp module, ProgramTables &tables) {
  Manifest manifest = fsdp::describeModule(module);
  manifest.compiler = "fsdpc " FSDPC_VERSION;
  analysis::addArena(module, manifest);
  analysis::addStacks(module, manifest);
  addPredictions(module, manifest);
  manifest.scheduleHash = hashSchedule(module);
  manifest.programHash = hashProgram(module);
  manifest.events = tables.events;
  manifest.constantBytes = tables.constants.size();
  addSources(module, tables, manifest);
  // A loss with a divisor is a mean.
  if (func::FuncOp evaluate = fsdp::findEvaluate(module))
    for (auto report : evaluate.getOps<rt::ReportLossOp>())
      manifest.evaluatesMeans = report.getValid() != nullptr;
  if (auto buckets = module->getAttrOfType<ArrayAttr>(fsdp::kBucketsAttr))
    for (auto name : buckets.getAsValueRange<StringAttr>())
      manifest.buckets.push_back(name.str());
  for (auto input : module.getOps<rt::InputOp>())
    manifest.inputs.push_back(inputOf(input));
  // The log reports tokens per second if the first input looks like a batch of
  // sequences: two dimensions of i64.
  if (!manifest.inputs.empty() && manifest.inputs[0].shape.size() == 2 &&
      manifest.inputs[0].dtype == "i64")
    manifest.tokensInput = manifest.inputs[0].name;
  // In the order of their numbers, which generated code uses.
  for (auto &[kind, table] : tables.plans)
    for (auto &[plan, index] : table)
      cast<rt::PlanAttrInterface>(plan).addTo(manifest);
  addCalls(module, tables, manifest);
  return manifest;
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes a module as a manifest before there is a program, so that the
// scheduler and the memory planner compute a rank's memory with the same
// function as the running program (planMemory).
#include "compiler/dialects/fsdp/ModuleManifest.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/dialects/fsdp/WeightPrograms.h"
#include "compiler/options/Options.h"
#include "compiler/options/Processor.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "runtime/support/concat.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace fsdpc::fsdp {

// MLIR's spelling of a type is the manifest's, but for unsigned integers, which
// the runtime names as the formats of its files do.
std::string dtypeName(Type type) {
  if (type.isUnsignedInteger())
    return concat("u", type.getIntOrFloatBitWidth());
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << type;
  return text;
}

static std::vector<std::string> strings(std::optional<ArrayAttr> array) {
  std::vector<std::string> result;
  if (array)
    for (auto text : array->getAsRange<StringAttr>())
      result.push_back(text.str());
  return result;
}

// Copies what the update must know of the hooks on the reduction.
static void addHooks(const CompileOptions &options, Manifest &manifest) {
  for (const ReduceHook &hook : options.reduceHooks) {
    if (hook.kind == ReduceHook::Kind::Predivide)
      manifest.predivided *= hook.number;
    manifest.averagedBefore |= hook.kind == ReduceHook::Kind::AverageBefore;
    manifest.countsZeroed |= hook.kind == ReduceHook::Kind::ZeroNonfinite;
  }
}

// Copies what the runtime needs of the options: what it prints, what decides
// its memory, and what it refuses (more ranks than maxRanks, more microbatches
// per step than maxAccumulate).
static void addOptions(ModuleOp module, Manifest &manifest) {
  CompileOptions options = CompileOptions::of(module);
  manifest.target = nameOf(options.target).str();
  if (options.isCuda())
    for (Gpu gpu : options.gpus)
      manifest.gpuArchs.push_back(nameOf(gpu).str());
  // The scratch memory that library calls of the host need depends on them.
  if (options.target == Target::Host)
    manifest.cpuFeatures = featuresOf(options.cpu);
  manifest.strategy = describeStrategies(module);
  manifest.computeDtype = nameOf(options.paramType.type).str();
  manifest.reduceDtype = nameOf(options.reduceType).str();
  manifest.lr = options.lr();
  manifest.maxNorm = options.clipGradNorm;
  manifest.lossScale = options.lossScale();
  addHooks(options, manifest);
  manifest.maxRanks = options.maxRanks;
  manifest.planRanks = options.planRanks;
  manifest.planThreads = options.planThreads;
  manifest.planRanksPerNode = options.planRanksPerNode;
  manifest.reshardTo = options.reshardTo;
  manifest.maxAccumulate = options.maxAccumulate;
  manifest.memoryLimit = options.memoryLimit.bytes;
  manifest.shardAlignment = options.shardAlignment();
}

// The weights are in the module whichever mean was chosen.
static void addLossWeights(ModuleOp module, Manifest &manifest) {
  LossMean mean = CompileOptions::of(module).lossMean;
  for (auto weight : module.getOps<LossWeightOp>()) {
    manifest.lossMean = nameOf(mean).str();
    if (mean == LossMean::Step)
      manifest.lossWeights.push_back(lossWeightOf(weight));
  }
}

// A dump may name a group that the options do not have, until verify-shard.
static std::string optimizerOf(LayoutOp layout, const CompileOptions &options) {
  size_t group = layout.getGroup().value_or(0);
  if (group == 0 || group > options.groups.size())
    return options.optimizer.name();
  return options.ofGroup(options.groups[group - 1]).optimizer.name();
}

// The verifier has checked that every member is a parameter.
static Layout layoutOf(LayoutOp op, const SymbolTable &symbols,
                       const CompileOptions &options) {
  Layout layout;
  // The layout's own attribute, and not the option: a dump may have been edited
  // layout by layout.
  layout.inGroups = cutOver(op, options) == CutOver::Group;
  layout.owned = hasOwner(op, options);
  layout.name = op.getSymName().str();
  layout.unit = op.getUnit().str();
  layout.trainable = op.getTrainable();
  layout.elements = op.getElements();
  layout.states = op.getStates();
  layout.average = op.getAverage();
  layout.noMaster = op.getNoMaster();
  layout.unsummed = isUnsummed(op);
  layout.statesOffloaded = isOffloaded(op, "state");
  layout.gradientOffloaded = isOffloaded(op, "gradient");
  layout.parametersOffloaded = isOffloaded(op, "parameter");
  // Before mixed-precision all layouts are f32; the marks are there from the
  // start.
  layout.keptF32 = !op.holdsBytes() && keepsF32(op, symbols);
  layout.ofBytes = op.holdsBytes();
  layout.secondary = op.getSecondary();
  if (BlockType wire = wireOf(op); wire != BlockType::None)
    layout.wire = nameOf(wire).str();
  layout.compression = compressionOf(op);
  if (op.getTrainable())
    layout.optimizer = optimizerOf(op, options);
  if (OptimizerAttr optimizer = op.getOptimizerAttr()) {
    layout.stateNames = strings(optimizer.getStates());
    layout.sums = int32_t(optimizer.getSums());
    layout.factored = optimizer.getFactored();
    layout.orthogonal = optimizer.getOrthogonal();
  }
  for (auto kept : op.getWhole().getAsRange<StringAttr>()) {
    layout.masterWhole |= kept == "master";
    layout.gradientWhole |= kept == "gradient";
    layout.stateWhole |= kept == "state";
    layout.computeWhole |= kept == "compute";
  }
  for (auto attribute : op.getMembers().getAsRange<MemberAttr>()) {
    auto parameter =
        symbols.lookup<ParameterOp>(attribute.getParameter().getValue());
    Member member;
    member.name = nameOf(parameter).str();
    member.aliases = strings(parameter.getAliases());
    member.shape = cast<RankedTensorType>(parameter.getType()).getShape().vec();
    member.offset = attribute.getOffset();
    member.elements = attribute.getElements();
    if (layout.ofBytes)
      member.dtype = dtypeName(
          cast<RankedTensorType>(parameter.getType()).getElementType());
    member.rate = attribute.getRate().getValueAsDouble();
    member.decay = attribute.getDecay().getValueAsDouble();
    // It decides if a frozen layout has masters.
    if (SourceAttr source = parameter.getSourceAttr())
      member.source.dtype = source.getDtype();
    layout.members.push_back(std::move(member));
  }
  return layout;
}

// Numbers the members by the order of the parameters' symbols. It is the
// model's: no pass reorders them.
static void addPositions(ModuleOp module, Manifest &manifest) {
  llvm::StringMap<int64_t> positions;
  for (auto parameter : module.getOps<ParameterOp>())
    positions.try_emplace(nameOf(parameter), positions.size());
  for (Layout &layout : manifest.layouts)
    for (Member &member : layout.members)
      member.position = positions.lookup(member.name);
}

// Returns "adamw, sgd" if layouts have several. Before the phase `shard` there
// are no layouts.
static std::string joinOptimizers(const Manifest &manifest,
                                  const CompileOptions &options) {
  SmallVector<StringRef> names;
  for (const Layout &layout : manifest.layouts)
    if (layout.trainable && !llvm::is_contained(names, layout.optimizer))
      names.push_back(layout.optimizer);
  return names.empty() ? options.optimizer.name() : llvm::join(names, ", ");
}

static Buffer bufferOf(BufferOp op, const CompileOptions &options) {
  auto type = cast<RankedTensorType>(op.getType());
  Buffer buffer;
  buffer.name = nameOfSymbol(op.getSymName()).str();
  buffer.aliases = strings(op.getAliases());
  buffer.shape = type.getShape().vec();
  buffer.dtype = dtypeName(type.getElementType());
  buffer.addEachMicrobatch = op.getCounts() ? op.getCalls().value_or(1) : 0;
  buffer.countsOneRank = op.getCounts() && !options.countsEachRank();
  buffer.optimizerState = op.getState();
  return buffer;
}

// In phase `runtime` the inputs are no longer arguments, and nothing is added.
static void addInputs(func::FuncOp function, Manifest &manifest) {
  for (BlockArgument argument : function.getArguments()) {
    auto type = cast<RankedTensorType>(argument.getType());
    Input input;
    if (auto name = function.getArgAttrOfType<StringAttr>(
            argument.getArgNumber(), FSDPDialect::kInputAttr))
      input.name = name.str();
    input.shape = type.getShape().vec();
    input.dtype = dtypeName(type.getElementType());
    manifest.inputs.push_back(std::move(input));
  }
}

Manifest describeModule(ModuleOp module) {
  Manifest manifest;
  addOptions(module, manifest);
  addLossWeights(module, manifest);
  SymbolTable symbols(module);
  CompileOptions options = CompileOptions::of(module);
  for (auto layout : module.getOps<LayoutOp>())
    manifest.layouts.push_back(layoutOf(layout, symbols, options));
  addPositions(module, manifest);
  manifest.optimizer = joinOptimizers(manifest, options);
  for (auto buffer : module.getOps<BufferOp>())
    manifest.buffers.push_back(bufferOf(buffer, options));
  if (auto function =
          module.lookupSymbol<func::FuncOp>(FSDPDialect::kMicrobatch))
    addInputs(function, manifest);
  return manifest;
}

} // namespace fsdpc::fsdp

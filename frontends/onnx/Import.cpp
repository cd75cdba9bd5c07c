// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps of an import, in order: read the file, classify its tensors, import
// the graph, find the loss, drop what the loss does not need, define the
// symbols that are left. The order matters: symbols come last, since only then
// is it known which parameters the loss depends on.
#include "frontends/onnx/Import.h"

#include "compiler/dialects/fsdp/SymbolNames.h"
#include "frontends/onnx/GivenGradients.h"
#include "frontends/onnx/GraphTypes.h"
#include "frontends/onnx/Inputs.h"
#include "frontends/onnx/ModelOptimizer.h"
#include "frontends/onnx/RuntimeTraining.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/options/OptionTable.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// onnxscript's optimizer merges equal initializers and folds transposes into
// weights, after which names and shapes are no longer those of the model.
static void warnOptimized(const ModelFile &model, Location loc) {
  StringRef key = "pkg.onnxscript.optimizer.folded_from";
  auto hasKey = [&](const auto &part) {
    return !metadata(part.metadata_props(), key).empty();
  };
  const onnx::GraphProto &graph = model.proto.graph();
  if (llvm::any_of(graph.node(), hasKey) ||
      llvm::any_of(graph.initializer(), hasKey) ||
      llvm::any_of(graph.value_info(), hasKey))
    emitWarning(loc)
        << "'" << model.path
        << "' was optimized at export, which can merge or transpose weights; "
           "export with optimize=False to keep the model's names and shapes";
}

// The exporter drops some settings without a trace, and without them another
// model may be trained (docs/onnx.md, "What no file says").
static void remarkUnknown(const TorchExport &torch, const ModelFile &model,
                          Location loc) {
  if (std::string unknowns = torch.unknowns(); !unknowns.empty())
    emitRemark(loc) << "'" << model.path << "' may lack " << unknowns
                    << "; fsdpc.export keeps them";
}

// Tells the user what was assumed about training behaviour, since the exported
// graph often does not say.
static void remarkTraining(const fsdp::CompileOptions &options,
                           const ImportSummary &summary, Location loc) {
  if (summary.batchNorms > 0)
    emitRemark(loc) << summary.batchNorms
                    << " BatchNormalization nodes use batch statistics; use "
                       "--batchnorm=graph or --batchnorm=off to change this";
  if (summary.dropouts > 0 && options.dropout == fsdp::TrainingMode::On)
    emitRemark(loc) << summary.dropouts
                    << " Dropout nodes are active; use --dropout=graph or "
                       "--dropout=off to change this";
}

// Returns the value in one of the types that a program reports: f32 for numbers
// with a fraction and for scalars, else i64, i32 or i1.
static Value reported(Emitter &b, Value value, bool isScalar) {
  Type element = elementOf(value);
  if (isScalar || isa<FloatType>(element))
    return b.cast(value, b.builder.getF32Type());
  if (element.isInteger(1) || element.isInteger(32) || element.isInteger(64))
    return value;
  return b.cast(value, b.builder.getI64Type());
}

static bool isGiven(const fsdp::CompileOptions &options, StringRef name) {
  return llvm::is_contained(options.given, fsdp::findOption(name));
}

// Reports the tensors of --keep-output. One with a single element is a scalar.
static LogicalResult reportOutputs(GraphImporter &importer,
                                   const fsdp::CompileOptions &options) {
  Emitter &b = importer.emitter();
  llvm::StringSet<> seen;
  for (const std::string &name : options.keptOutputs) {
    if (!seen.insert(name).second)
      return emitError(b.loc)
             << "--keep-output '" << name << "' is given twice";
    Value value = importer.findOutput(name);
    if (!value)
      return failure();
    bool isScalar = tensorType(value).getNumElements() == 1;
    if (isScalar)
      value = b.reshape(value, {});
    b.op<fsdp::ReportOutputOp>(b.builder.getStringAttr(name),
                               reported(b, value, isScalar));
  }
  return success();
}

// Ends the function with the report of the loss. If the loss is a
// cross-entropy, the number of valid targets is reported as well.
static void reportLoss(Emitter &b, Value loss) {
  Value valid;
  if (auto entropy = loss.getDefiningOp<nn::CrossEntropyOp>())
    valid = entropy.getValid();
  b.op<fsdp::ReportLossOp>(b.reshape(loss, {}), valid);
  b.op<func::ReturnOp>();
}

// Erases from the end, so that one pass removes whole chains. Ops with effects,
// such as the reports and updates of statistics, stay.
static void eraseDead(Block &body) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

// Returns true if the loss depends on a trainable parameter. A walk from the
// report backwards that stops at detached values.
static bool reachesLoss(func::FuncOp function, SymbolTable &symbols) {
  SmallVector<Operation *> stack;
  function.walk([&](fsdp::ReportLossOp report) { stack.push_back(report); });
  llvm::SmallPtrSet<Operation *, 32> seen;
  while (!stack.empty()) {
    Operation *op = stack.pop_back_val();
    if (!seen.insert(op).second || isa<nn::StopGradientOp>(op))
      continue;
    if (auto load = dyn_cast<fsdp::LoadOp>(op)) {
      auto parameter = symbols.lookup<fsdp::ParameterOp>(load.getSymbol());
      if (parameter && parameter.getTrainable())
        return true;
    }
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        stack.push_back(producer);
  }
  return false;
}

// Defines the counters of seen batches. They are not in the graph, but torch's
// checkpoints have them; they start at zero.
static void emitCounters(OpBuilder &builder, func::FuncOp function,
                         const ParameterTable &parameters,
                         const GraphImporter &importer,
                         ImportSummary &summary) {
  function.walk([&](fsdp::UpdateStatisticsOp update) {
    StringRef buffer = fsdp::nameOfSymbol(update.getBuffer());
    std::optional<std::string> name = parameters.counterOf(buffer);
    if (!name)
      return;
    // A module that a model calls twice counts twice.
    int64_t calls = importer.updatesOf(buffer);
    auto type = RankedTensorType::get({}, builder.getI64Type());
    fsdp::BufferOp::create(
        builder, update.getLoc(),
        builder.getStringAttr(fsdp::symbolOfTensor(*name)), TypeAttr::get(type),
        builder.getUnitAttr(), ArrayAttr(), fsdp::SourceAttr(), StringAttr(),
        DenseElementsAttr::get(type, int64_t(0)), UnitAttr(),
        calls > 1 ? builder.getI64IntegerAttr(calls) : IntegerAttr());
    ++summary.buffers;
  });
}

// Takes the loss and the optimizer of the model's own training, unless the user
// has given others, and the initial values in any case.
static LogicalResult adoptTraining(const Training &training,
                                   GraphImporter &importer,
                                   ParameterTable &parameters,
                                   fsdp::CompileOptions &options,
                                   ImportSummary &summary) {
  auto initial = readInitialization(training, importer);
  if (failed(initial) || failed(parameters.setInitial(*initial)))
    return failure();
  if (!training.updatesParameters() ||
      (training.isOfRuntime && training.optimizerFile.empty()))
    return success();
  bool isOwn = !isGiven(options, "optimizer");
  if (isOwn && training.isOfRuntime)
    return adoptRuntimeOptimizer(training.optimizerFile, options, summary,
                                 importer.emitter().builder.getContext());
  if (isOwn) {
    auto update = importUpdate(training, *initial, importer, parameters);
    return failed(update) ? failure()
                          : adoptOptimizer(*update, importer, parameters,
                                           options, summary);
  }
  summary.optimizer =
      options.optimizer.name() + " of --optimizer, not that of the model's " +
      (training.isOfRuntime ? "optimizer_model.onnx" : "training_info");
  return success();
}

// Sets the type that --param-dtype=graph stands for. Fails if other options do
// not fit that type.
static LogicalResult resolveTypes(const GraphTypes &types, StringRef path,
                                  fsdp::CompileOptions &options,
                                  MLIRContext *context) {
  if (failed(types.resolve(path, options.paramType, context)))
    return failure();
  std::string fault = fsdp::checkOptions(options);
  if (fault.empty())
    return success();
  return emitError(UnknownLoc::get(context))
         << "'" << path << "' does not fit the options: " << fault;
}

// Parameters that are not f32 in the file have the type of --param-dtype.
static void noteF32Parameters(ModuleOp module, const GraphTypes &types) {
  auto f32 = TypeAttr::get(Float32Type::get(module.getContext()));
  for (auto parameter : module.getOps<fsdp::ParameterOp>()) {
    // Its location is its name in the graph, which differs from the symbol's.
    auto loc = cast<NameLoc>(parameter.getLoc());
    if (types.isF32(loc.getName()))
      parameter->setAttr(nn::NNDialect::kTypeAttr, f32);
  }
}

// Returns the names of the tensors that survive: those that ops in the function
// still refer to. Statistics are updated even where nothing loads them.
static llvm::StringSet<> symbolsUsed(func::FuncOp function) {
  llvm::StringSet<> used;
  function.walk([&](Operation *op) {
    if (auto load = dyn_cast<fsdp::LoadOp>(op))
      used.insert(fsdp::nameOfSymbol(load.getSymbol()));
    else if (auto update = dyn_cast<fsdp::UpdateStatisticsOp>(op))
      used.insert(fsdp::nameOfSymbol(update.getBuffer()));
    else if (auto gradient = dyn_cast<fsdp::GradientOp>(op))
      used.insert(fsdp::nameOfSymbol(gradient.getParameter()));
  });
  return used;
}

// Emits an error if the module trains nothing.
static LogicalResult checkTrains(ModuleOp module, func::FuncOp function,
                                 const llvm::StringSet<> &used,
                                 StringRef path) {
  Location loc = module.getLoc();
  if (llvm::none_of(module.getOps<fsdp::ParameterOp>(),
                    [&](fsdp::ParameterOp parameter) {
                      return used.contains(fsdp::nameOf(parameter));
                    }))
    return emitError(loc) << "'" << path
                          << "' has nothing to train: its loss does not depend "
                             "on any parameter";
  SymbolTable symbols(module);
  if (!reachesLoss(function, symbols))
    return emitError(loc)
           << "no trainable parameter of '" << path
           << "' affects the loss; check --frozen and --trainable";
  return success();
}

FailureOr<OwningOpRef<ModuleOp>>
fsdpc::frontend::importOnnx(StringRef path, fsdp::CompileOptions &options,
                            MLIRContext *context, ImportSummary *summary) {
  context->loadDialect<nn::NNDialect, fsdp::FSDPDialect, func::FuncDialect>();
  Location loc = UnknownLoc::get(context);
  // Budgets live in the summary, so there is always one.
  ImportSummary unasked;
  ImportSummary &counts = summary ? *summary : unasked;
  counts = ImportSummary();
  std::unique_ptr<ModelFile> model =
      ModelFile::read(path, counts.budgets, context);
  if (!model)
    return failure();

  FailureOr<Training> training =
      Training::take(*model, !isGiven(options, "optimizer"), context);
  if (failed(training))
    return failure();
  if (!training->loss.empty() && options.loss.empty())
    (void)fsdp::setOption(*fsdp::findOption("loss"), training->loss, options);
  std::optional<GraphTypes> types;
  if (options.paramType.ofGraph) {
    types.emplace(model->proto);
    if (failed(resolveTypes(*types, path, options, context)))
      return failure();
  }
  Weights weights(*model, counts.budgets, context);
  Refusals refusals(path, context);
  ParameterTable parameters(*model, *training, weights, options, refusals,
                            context);
  if (failed(weights.check()) || failed(parameters.build()))
    return failure();
  FailureOr<ModelInputs> inputs =
      readInputs(*model, parameters, options, refusals, context);
  if (failed(inputs))
    return failure();
  // Only a warning: the model trains, but its names may not be the user's.
  warnOptimized(*model, loc);
  TorchExport torch(model->proto);
  remarkUnknown(torch, *model, loc);

  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  OpBuilder builder(module->getBodyRegion());
  auto function =
      func::FuncOp::create(builder, loc, fsdp::FSDPDialect::kMicrobatch,
                           builder.getFunctionType(inputs->types, {}));
  GraphImporter importer(*model, weights, parameters, options, torch, refusals,
                         context, counts);
  if (failed(importer.run(function, inputs->names)))
    return failure();
  Value lossValue = importer.findLoss();
  if (!lossValue)
    return failure();
  if (failed(reportOutputs(importer, options)) ||
      failed(handOverGradients(*model, importer, parameters, options)))
    return failure();
  reportLoss(importer.emitter(), lossValue);
  eraseDead(function.getBody().front());
  if (failed(adoptTraining(*training, importer, parameters, options, counts)))
    return failure();

  llvm::StringSet<> used = symbolsUsed(function);
  builder.setInsertionPointToStart(module->getBody());
  if (failed(parameters.emit(builder, used, counts)))
    return failure();
  // Not after resolveTypes, which has found that the model is f32.
  if (options.paramType.ofGraph)
    noteF32Parameters(*module, *types);
  emitCounters(builder, function, parameters, importer, counts);
  if (failed(checkTrains(*module, function, used, path)))
    return failure();
  // After eraseDead, or inputs of dead ops would count as used.
  if (failed(finishInputs(function, inputs->names)))
    return failure();
  counts.files = weights.filesRead();
  counts.files.insert(model->identity);
  counts.inputs = function.getNumArguments();
  remarkTraining(options, counts, loc);
  if (failed(verify(*module)))
    return failure();
  return module;
}

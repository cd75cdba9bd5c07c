// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks the invariants that close the phase `import`. All later passes rely on
// them, whether the module comes from the importer or from an edited dump, so a
// dump that breaks one is refused here rather than miscompiled later. They hold
// until the phase `memory`, and are checked again for every dump.
#include "passes/import/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "runtime/abi/stored_names.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_VERIFYINPUT
#include "passes/import/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

// The names of inputs are how the runtime finds their data, so they must be
// there and differ. Results would have no reader: a function hands over its
// loss and outputs by ops that report them.
static LogicalResult verifySignature(func::FuncOp function) {
  if (function.getNumResults() != 0 || !function.getBody().hasOneBlock())
    return function.emitError("'@")
           << function.getSymName() << "' must have one block and no results";
  llvm::StringSet<> names;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto name =
        function.getArgAttrOfType<StringAttr>(i, fsdp::FSDPDialect::kInputAttr);
    if (!name)
      return function.emitError("argument '") << i << "' has no 'fsdp.input'";
    if (!names.insert(name.getValue()).second)
      return function.emitError("input '")
             << name.getValue() << "' is declared twice";
  }
  return success();
}

// Checks the dialect of an op, and that the symbols it names exist and fit.
static LogicalResult verifyOp(Operation *op, SymbolTable &symbols) {
  // Ops of other dialects have no meaning to the later passes. Kernels and
  // layouts appear later, and are symbols.
  if (!isa<nn::NNDialect, fsdp::FSDPDialect>(op->getDialect()) &&
      !isa<func::ReturnOp>(op))
    return op->emitError("'")
           << op->getName() << "' is not an op of the dialects nn and fsdp";
  if (auto load = dyn_cast<fsdp::LoadOp>(op)) {
    Operation *symbol = symbols.lookup(load.getSymbol());
    // Parameters and buffers both have the attribute `type`.
    auto type = symbol ? symbol->getAttrOfType<TypeAttr>("type") : TypeAttr();
    if (!isa_and_nonnull<fsdp::ParameterOp, fsdp::BufferOp>(symbol) || !type ||
        type.getValue() != load.getType())
      return op->emitError("'")
             << load.getSymbol() << "' is not a parameter or buffer of type "
             << load.getType();
  }
  if (auto update = dyn_cast<fsdp::UpdateStatisticsOp>(op))
    if (!symbols.lookup<fsdp::BufferOp>(update.getBuffer()))
      return op->emitError("'") << update.getBuffer() << "' is not a buffer";
  return success();
}

// Returns the parameter that the op reads: as such, or from the phase `shard`
// on as a member of a flat buffer.
static FlatSymbolRefAttr readBy(Operation *op) {
  if (auto load = dyn_cast<fsdp::LoadOp>(op))
    return load.getSymbolAttr();
  auto view = dyn_cast<fsdp::ViewOp>(op);
  return view ? view.getMemberAttr() : FlatSymbolRefAttr();
}

// Returns true if the loss depends on a trainable parameter. Walks from the
// loss upwards and visits each op once.
static bool dependsOnParameter(fsdp::ReportLossOp report,
                               SymbolTable &symbols) {
  // Without recursion: a deep model has chains of many thousand ops.
  SmallVector<Operation *> stack = {report};
  llvm::SmallPtrSet<Operation *, 32> seen;
  while (!stack.empty()) {
    Operation *op = stack.pop_back_val();
    if (!seen.insert(op).second)
      continue;
    if (FlatSymbolRefAttr name = readBy(op))
      if (auto parameter = symbols.lookup<fsdp::ParameterOp>(name.getAttr()))
        if (parameter.getTrainable())
          return true;
    for (Value operand : op->getOperands())
      if (Operation *producer = operand.getDefiningOp())
        stack.push_back(producer);
  }
  return false;
}

using Outputs = llvm::StringMap<fsdp::ReportOutputOp>;

// Collects the outputs that a function reports, by name. A name stands for one
// output of the program.
static LogicalResult collectOutputs(func::FuncOp function, Outputs &outputs) {
  for (auto report : function.getOps<fsdp::ReportOutputOp>())
    if (!outputs.try_emplace(report.getName(), report).second)
      return report.emitError("output '")
             << report.getName() << "' is reported twice";
  return success();
}

// Metrics are logged in training and in evaluations, so both report them, with
// one type. @evaluate may report further tensors.
static LogicalResult verifyOutputs(func::FuncOp microbatch,
                                   func::FuncOp evaluate) {
  Outputs trained, evaluated;
  if (failed(collectOutputs(microbatch, trained)))
    return failure();
  if (!evaluate)
    return success();
  if (failed(collectOutputs(evaluate, evaluated)))
    return failure();
  for (auto &[name, report] : trained) {
    auto found = evaluated.find(name);
    if (found == evaluated.end())
      return evaluate.emitError("'@evaluate' does not report the output '")
             << name << "' of '@microbatch'";
    Type type = found->second.getValue().getType();
    if (type != report.getValue().getType())
      return found->second.emitError("output '")
             << name << "' has type " << type << " in '@evaluate', but "
             << report.getValue().getType() << " in '@microbatch'";
  }
  // A metric that only evaluations have would leave a gap in the log of the
  // steps.
  for (auto &[name, report] : evaluated)
    if (report.isScalar() && !trained.contains(name))
      return report.emitError("metric '")
             << name << "' is not reported in '@microbatch'";
  return success();
}

// @evaluate reads the inputs of @microbatch and reports the same loss.
static LogicalResult verifyEvaluate(func::FuncOp function,
                                    func::FuncOp microbatch,
                                    SymbolTable &symbols) {
  if (failed(verifySignature(function)))
    return failure();
  // Equal attributes of arguments mean equal names of inputs.
  if (function.getFunctionType() != microbatch.getFunctionType() ||
      function.getArgAttrsAttr() != microbatch.getArgAttrsAttr())
    return function.emitError(
        "'@evaluate' must have the inputs of '@microbatch'");
  for (Operation &op : function.getBody().front())
    if (failed(verifyOp(&op, symbols)))
      return failure();
  auto losses = function.getOps<fsdp::ReportLossOp>();
  if (!llvm::hasSingleElement(losses))
    return function.emitError("'@evaluate' must report exactly one loss");
  return success();
}

// A tensor whose name is another one's in a file could be trained, but neither
// saved nor resumed.
static LogicalResult verifyStoredNames(ModuleOp module) {
  runtime::StoredNames names, aliases;
  for (Operation &op : module.getBody()->getOperations()) {
    if (!isa<fsdp::ParameterOp, fsdp::BufferOp>(op))
      continue;
    auto refuse = [&](StringRef name, StringRef other) {
      if (name == other)
        return op.emitError("tensor name '")
               << name
               << "' is reserved by the safetensors format; rename the tensor "
                  "in the model";
      return op.emitError("files cannot tell tensor '")
             << name << "' from '" << other
             << "': they replace bytes that are not UTF-8; rename one of them "
                "in the model";
    };
    StringRef name =
        fsdp::nameOfSymbol(SymbolTable::getSymbolName(&op).getValue());
    if (std::optional<std::string> other = names.add(name.str()))
      return refuse(name, *other);
    auto others = op.getAttrOfType<ArrayAttr>("aliases");
    if (!others)
      continue;
    for (auto alias : others.getAsRange<StringAttr>())
      if (std::optional<std::string> other = aliases.add(alias.str());
          other && *other != alias.getValue())
        return refuse(alias.getValue(), *other);
  }
  return success();
}

static LogicalResult verifyInput(ModuleOp module) {
  if (failed(verifyStoredNames(module)))
    return failure();
  auto function =
      module.lookupSymbol<func::FuncOp>(fsdp::FSDPDialect::kMicrobatch);
  if (!function)
    return module.emitError("expected a function '@microbatch'");
  if (failed(verifySignature(function)))
    return failure();
  SymbolTable symbols(module);
  SmallVector<fsdp::ReportLossOp> losses;
  for (Operation &op : function.getBody().front()) {
    if (failed(verifyOp(&op, symbols)))
      return failure();
    if (auto report = dyn_cast<fsdp::ReportLossOp>(op))
      losses.push_back(report);
  }
  // The backward starts from one loss.
  if (losses.size() != 1)
    return function.emitError("'@microbatch' reports ")
           << losses.size() << " losses; expected exactly one";
  if (!dependsOnParameter(losses[0], symbols))
    return losses[0].emitError("no trainable parameter affects the loss");
  auto evaluate = module.lookupSymbol<func::FuncOp>(fsdp::kEvaluate);
  if (failed(verifyOutputs(function, evaluate)))
    return failure();
  return evaluate ? verifyEvaluate(evaluate, function, symbols) : success();
}

namespace {
struct VerifyInput : fsdpc::passes::impl::VerifyInputBase<VerifyInput> {
  void runOnOperation() override {
    if (failed(verifyInput(getOperation())))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace

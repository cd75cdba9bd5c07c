// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Marks what --keep-f32 names: the ops of the modules that a glob matches, by
// class or by name, and the parameters that such an op reads. mixed-precision
// leaves them in f32. It follows the ignored module classes of torch's
// MixedPrecision (_module_classes_to_ignore), which FSDP1 wraps apart.
#include "passes/units/KeepF32.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/Rearrangements.h"
#include "compiler/options/Options.h"
#include "passes/units/ModuleScopes.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/GlobPattern.h"

using namespace mlir;
using fsdpc::fsdp::FSDPDialect;

namespace fsdpc::passes {

// Ops without modules belong to the root alone, whose name is empty, so that
// '*' matches all ops of any model.
static SmallVector<StringRef> namesAround(Operation *op) {
  SmallVector<StringRef> names = {""};
  for (ModuleScope module : getModules(op)) {
    names.append({module.scope, module.cls});
    // A pattern may name the class with or without its Python module.
    names.push_back(lastComponent(module.cls));
  }
  return names;
}

static LogicalResult markOps(ModuleOp module, Block &body, StringRef text) {
  // The pattern refers to its text, so the context keeps a copy.
  llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(
      StringAttr::get(module.getContext(), text).getValue());
  if (!glob)
    return emitError(module.getLoc())
           << "--keep-f32 '" << text << "' is not a valid glob pattern: "
           << llvm::toString(glob.takeError());
  SmallVector<StringRef> all;
  bool used = false;
  for (Operation &op : body.without_terminator()) {
    SmallVector<StringRef> names = namesAround(&op);
    llvm::copy_if(names, std::back_inserter(all),
                  [](StringRef name) { return !name.empty(); });
    if (llvm::none_of(names, [&](StringRef name) { return glob->match(name); }))
      continue;
    used = true;
    op.setAttr(FSDPDialect::kKeepF32Attr, UnitAttr::get(op.getContext()));
  }
  if (used)
    return success();
  return emitError(module.getLoc())
         << "--keep-f32 '" << text
         << "' matches no module; available: " << fsdp::listNearest(text, all);
}

// Notes which parameter each load, or rearrangement of one, is of.
static llvm::DenseMap<Value, StringAttr> findWeights(Block &body) {
  llvm::DenseMap<Value, StringAttr> weights;
  for (Operation &op : body.without_terminator())
    if (auto load = dyn_cast<fsdp::LoadOp>(op))
      weights[load.getResult()] = load.getSymbolAttr().getAttr();
    else if (nn::isRearrangement(&op))
      if (StringAttr name = weights.lookup(op.getOperand(0)))
        weights[op.getResult(0)] = name;
  return weights;
}

// A parameter that a marked op and another one read is kept too: the other one
// casts it. Loads and rearrangements are of the parameter's type, whatever
// module the exporter says they are of.
LogicalResult markKeptF32(ModuleOp module, Block &body) {
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
  if (options.keptF32.empty() && !options.paramType.ofGraph)
    return success();
  for (const std::string &text : options.keptF32)
    if (failed(markOps(module, body, text)))
      return failure();
  llvm::DenseMap<Value, StringAttr> weights = findWeights(body);
  llvm::DenseSet<StringAttr> kept;
  auto isWeight = [&](Operation &op) {
    return op.getNumResults() == 1 && weights.contains(op.getResult(0));
  };
  for (Operation &op : body.without_terminator())
    if (op.hasAttr(FSDPDialect::kKeepF32Attr) && !isWeight(op))
      for (Value operand : op.getOperands())
        if (StringAttr name = weights.lookup(operand))
          kept.insert(name);
  for (auto parameter : module.getOps<fsdp::ParameterOp>())
    if (auto type =
            parameter->getAttrOfType<TypeAttr>(nn::NNDialect::kTypeAttr);
        type && type.getValue().isF32())
      kept.insert(parameter.getSymNameAttr());
  auto mark = UnitAttr::get(module.getContext());
  for (auto parameter : module.getOps<fsdp::ParameterOp>())
    if (kept.contains(parameter.getSymNameAttr()))
      parameter->setAttr(FSDPDialect::kKeepF32Attr, mark);
  for (Operation &op : body.without_terminator()) {
    if (!isWeight(op))
      continue;
    op.removeAttr(FSDPDialect::kKeepF32Attr);
    if (kept.contains(weights.lookup(op.getResult(0))))
      op.setAttr(FSDPDialect::kKeepF32Attr, mark);
  }
  return success();
}

} // namespace fsdpc::passes

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the module scopes that the exporter wrote, and matches them with the
// options. Globs on classes follow the wrap policies of torch.distributed.fsdp;
// scopes are fully qualified names as in a state_dict.
#include "passes/units/ModuleScopes.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/NNAttributes.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/options/Options.h"

#include "llvm/ADT/StringExtras.h"

#include <set>

using namespace mlir;

namespace fsdpc::passes {
namespace {

bool isNumber(StringRef text) {
  return !text.empty() &&
         llvm::all_of(text, [](char c) { return llvm::isDigit(c); });
}

// Removes the suffix of a repeated call: "fc@1" is module "fc".
StringRef withoutCall(StringRef scope) {
  size_t at = scope.rfind('@');
  return at != StringRef::npos && isNumber(scope.substr(at + 1))
             ? scope.take_front(at)
             : scope;
}

} // namespace

StringRef lastComponent(StringRef name) {
  return name.substr(name.rfind('.') + 1); // npos + 1 is 0
}

// Stops at the first entry that is an operator: modules come first, outermost
// to innermost, and the traced call last.
SmallVector<ModuleScope> getModules(Operation *op) {
  SmallVector<ModuleScope> modules;
  auto all = op->getAttrOfType<nn::ModulesAttr>(nn::NNDialect::kModulesAttr);
  if (!all)
    return modules;
  for (auto [path, cls] : llvm::zip_equal(all.getPaths(), all.getClasses())) {
    if (nn::ModulesAttr::isCall(cls))
      break;
    modules.push_back({withoutCall(path), cls});
  }
  return modules;
}

FailureOr<UnitPolicy> UnitPolicy::read(ModuleOp module, Block &body) {
  UnitPolicy policy;
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
  auto scopes = fsdp::NamePatterns::compile(module.getLoc(), "unit-scope",
                                            options.unitScopes.texts);
  if (failed(scopes))
    return failure();
  policy.scopes = std::move(*scopes);
  // Only the rule `auto` without a size separates large parameters, since
  // --unit-size cuts the root by itself.
  policy.separatesLarge =
      options.unitSize == 0 && options.units == fsdp::UnitRule::Auto;
  // Repeated modules become units if the user has named none.
  bool repeated = policy.separatesLarge && options.unitClasses.empty() &&
                  policy.scopes.empty();

  SmallVector<StringRef> allScopes, allClasses;
  llvm::StringMap<std::set<StringRef>> numbered; // by class
  for (Operation &op : body)
    for (ModuleScope entry : getModules(&op)) {
      allScopes.push_back(entry.scope);
      allClasses.push_back(entry.cls);
      // The members of a container are numbered but need not be alike.
      if (isNumber(lastComponent(entry.scope)) &&
          !entry.cls.contains("container."))
        numbered[entry.cls].insert(entry.scope);
    }
  // A class with several numbered modules is a stack of layers: h.0, h.1 and so
  // on.
  if (repeated)
    for (auto &group : numbered)
      if (group.second.size() > 1)
        for (StringRef scope : group.second)
          policy.siblings.insert(scope);

  for (const std::string &text : options.unitClasses) {
    // The pattern refers to its text, so the context keeps a copy.
    llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(
        StringAttr::get(module.getContext(), text).getValue());
    if (!glob)
      return emitError(module.getLoc())
             << "--unit-class '" << text << "' is not a valid glob pattern: "
             << llvm::toString(glob.takeError());
    if (llvm::none_of(allClasses, [&](StringRef cls) {
          return glob->match(cls) || glob->match(lastComponent(cls));
        }))
      return emitError(module.getLoc())
             << "--unit-class '" << text << "' matches no class; available: "
             << fsdp::listNearest(text, allClasses);
    policy.classes.push_back(std::move(*glob));
  }
  // Marks the patterns that match a module, so that checkUsed can name the
  // others.
  for (StringRef scope : allScopes)
    policy.scopes.match(scope);
  if (failed(
          policy.scopes.checkUsed(module.getLoc(), allScopes, "module scope")))
    return failure();
  return policy;
}

// Names choose the outermost module that matches, classes the innermost. If
// both match, the inner one of the two is the unit.
std::optional<ModuleScope> UnitPolicy::choose(Operation *op) {
  SmallVector<ModuleScope> modules = getModules(op);
  std::optional<size_t> outermost, innermost;
  for (auto [i, entry] : llvm::enumerate(modules)) {
    if (!outermost && !entry.scope.empty() &&
        (scopes.match(entry.scope) || siblings.contains(entry.scope)))
      outermost = i;
    // A pattern may name the class with or without its Python module.
    if (llvm::any_of(classes, [&, cls = entry.cls](llvm::GlobPattern &glob) {
          return glob.match(cls) || glob.match(lastComponent(cls));
        }))
      innermost = i;
  }
  if (!outermost && !innermost)
    return std::nullopt;
  return modules[std::max(outermost.value_or(0), innermost.value_or(0))];
}

} // namespace fsdpc::passes

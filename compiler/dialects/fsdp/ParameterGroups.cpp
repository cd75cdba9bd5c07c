// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matches --group and --layer-decay against parameters; see ParameterGroups.h.
#include "compiler/dialects/fsdp/ParameterGroups.h"

#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/options/GroupOptions.h"

#include "llvm/ADT/MapVector.h"

#include <cmath>

using namespace mlir;

namespace fsdpc::fsdp {

// Every group is matched before an error is reported, so that checkUsed can
// tell an expression that matches nothing from one that others hide.
FailureOr<ParameterGroups> ParameterGroups::of(ModuleOp module) {
  CompileOptions options = CompileOptions::of(module);
  FirstMatch patterns("group");
  ParameterGroups result;
  result.programs = programsOf(options);
  for (const ParameterGroup &group : options.groups) {
    std::string why;
    std::optional<NamePattern> pattern =
        NamePattern::compile(group.pattern, why);
    assert(pattern && "the option's parser has compiled it");
    patterns.add(group.pattern, group.pattern,
                 [=](StringRef name) { return pattern->match(name); });
    result.list.push_back({group.pattern, {}});
  }
  SmallVector<StringRef> names;
  for (auto parameter : module.getOps<ParameterOp>()) {
    if (!parameter.getTrainable())
      continue;
    names.push_back(nameOf(parameter));
    if (auto number = patterns.find(namesOf(parameter))) {
      result.numbers[parameter] = *number;
      result.list[*number].members.push_back(parameter);
    }
  }
  if (failed(patterns.checkUsed(module.getLoc(), names, "trainable parameter")))
    return failure();
  return result;
}

std::optional<size_t> ParameterGroups::groupOf(ParameterOp parameter) const {
  auto it = numbers.find(parameter);
  return it == numbers.end() ? std::nullopt : std::optional(it->second);
}

size_t ParameterGroups::programOf(ParameterOp parameter) const {
  std::optional<size_t> group = groupOf(parameter);
  return group ? programs[*group] : 0;
}

// The order in which the forward loads parameters is the order of layers. A
// parameter that is loaded twice, as a tied one, counts where it is first.
FailureOr<DenseMap<Operation *, double>>
layerFactors(ModuleOp module, Block &body, double decay) {
  struct Place {
    Operation *parameter;
    size_t layer; // of the unit, or how many units come before
    bool inUnit;
  };
  SymbolTable symbols(module);
  llvm::MapVector<Operation *, size_t> layers; // units of modules, from 1
  SmallVector<Place> places;
  llvm::DenseSet<Operation *> seen;
  for (auto load : body.getOps<LoadOp>()) {
    auto parameter = symbols.lookup<ParameterOp>(load.getSymbol());
    if (!parameter || !parameter.getUnit() || !seen.insert(parameter).second)
      continue;
    auto unit = symbols.lookup<UnitOp>(*parameter.getUnit());
    bool inUnit = unit.getScope().has_value();
    if (inUnit)
      layers.try_emplace(unit, layers.size() + 1);
    places.push_back(
        {parameter, inUnit ? layers.lookup(unit) : layers.size(), inUnit});
  }
  if (layers.empty())
    return emitError(module.getLoc())
           << "--layer-decay has no effect: no unit is a module of the model; "
              "choose units with --unit-class or --unit-scope";
  DenseMap<Operation *, double> factors;
  for (const Place &place : places) {
    // decay^(L + 1 - i); the layer behind the last keeps its rate.
    bool last = !place.inUnit && place.layer == layers.size();
    size_t before = layers.size() + 1 - place.layer;
    factors[place.parameter] = last ? 1 : std::pow(decay, double(before));
  }
  return factors;
}

} // namespace fsdpc::fsdp

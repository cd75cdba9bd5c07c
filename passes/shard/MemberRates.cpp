// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rates and decays of members; see MemberRates.h.
#include "passes/shard/MemberRates.h"
#include "compiler/dialects/fsdp/Names.h"
#include "compiler/dialects/fsdp/SymbolNames.h"

using namespace mlir;

namespace fsdpc::passes {

FailureOr<MemberRates> MemberRates::of(ModuleOp module, Block &body) {
  MemberRates rates;
  rates.options = fsdp::CompileOptions::of(module);
  auto noDecay = fsdp::NamePatterns::compile(module.getLoc(), "no-decay",
                                             rates.options.noDecay.texts);
  if (failed(noDecay))
    return failure();
  SmallVector<StringRef> names;
  for (auto parameter : module.getOps<fsdp::ParameterOp>()) {
    names.push_back(nameOf(parameter));
    if (!matches(*noDecay, parameter) && parameter.getTrainable())
      rates.decayed.insert(parameter);
  }
  // A pattern that matches nothing is a spelling mistake.
  if (failed(noDecay->checkUsed(module.getLoc(), names, "parameter")))
    return failure();
  FailureOr<fsdp::ParameterGroups> groups = fsdp::ParameterGroups::of(module);
  if (failed(groups))
    return failure();
  rates.groups = std::move(*groups);
  for (const fsdp::ParameterGroup &group : rates.options.groups)
    rates.ofGroups.push_back(rates.options.ofGroup(group));
  // Without decay over layers the model need not have any that can be told
  // apart.
  if (rates.options.layerDecay == 1)
    return rates;
  auto factors = fsdp::layerFactors(module, body, rates.options.layerDecay);
  if (failed(factors))
    return failure();
  rates.layerFactors = std::move(*factors);
  return rates;
}

double MemberRates::rateOf(fsdp::ParameterOp parameter) const {
  auto factor = layerFactors.find(parameter);
  // A group's rate and the layer's factor multiply.
  double rate = factor == layerFactors.end() ? 1 : factor->second;
  std::optional<size_t> group = groups.groupOf(parameter);
  // A rate of 0 is that of all groups.
  if (group && ofGroups[*group].lr() != options.lr())
    rate *= ofGroups[*group].lr() / options.lr();
  return rate;
}

double MemberRates::decayOf(fsdp::ParameterOp parameter) const {
  std::optional<size_t> group = groups.groupOf(parameter);
  double decay = group ? ofGroups[*group].weightDecay() : options.weightDecay();
  // A group without a weight-decay of its own takes over that of the options,
  // to which --no-decay applies.
  bool named = group && options.groups[*group].find("weight-decay");
  return named || decayed.contains(parameter) ? decay : 0;
}

} // namespace fsdpc::passes

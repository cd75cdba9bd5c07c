// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of options, and how an option is found in it. OptionValues.cpp uses
// it on texts and attributes; OptionRules.cpp checks several options together.
// A new option is a field of CompileOptions and a row of
// runtime/support/compile_options.def.
#include "compiler/options/OptionTable.h"

#include "compiler/options/OptionTypes.h"
#include "compiler/options/StrategyTable.h"
#include "runtime/support/nearest.h"

using namespace mlir;

namespace fsdpc::fsdp {
namespace {

using Group = OptionGroup;
using Options = CompileOptions;

// Makes the row of a field; the functions follow from the field's type. `field`
// is a template parameter, so each lambda converts to a plain function pointer
// and the table stays constexpr.
template <auto field>
constexpr OptionInfo option(llvm::StringLiteral name, OptionGroup group,
                            llvm::StringLiteral placeholder,
                            llvm::StringLiteral help, NumberRange range = {},
                            OptionCondition condition = {"", ""}) {
  using Type =
      OptionType<std::decay_t<decltype(std::declval<CompileOptions>().*field)>>;
  return {
      name,
      group,
      placeholder,
      help,
      range,
      condition,
      Type::isFlag,
      Type::mayRepeat,
      &Type::legalValues,
      [](const OptionInfo &option, StringRef text, CompileOptions &options) {
        return Type::parse(option, text, options.*field);
      },
      [](const CompileOptions &options) { return Type::print(options.*field); },
      [](const OptionInfo &option, Attribute attribute,
         CompileOptions &options) {
        return Type::read(option, attribute, options.*field);
      },
      [](const CompileOptions &options, MLIRContext *context) {
        return Attribute(Type::write(options.*field, Builder(context)));
      },
      [](const CompileOptions &from, CompileOptions &to) {
        to.*field = from.*field;
      }};
}

// The values in an OptionCondition are spelt as `print` writes them. `below` is
// exclusive: a decay of 1 would keep an average forever.
constexpr NumberRange notNegative,
    fromOne = {1}, belowOne = {0, 1},
    ranks = {1, (1 << 20) + 1}, // as many as a checkpoint may have
    anyNumber = {-std::numeric_limits<double>::infinity()};
// Conditions that several rows share. checkOptions refuses an option outside of
// its condition. Optimizers.h says which hyperparameters an optimizer takes.
constexpr OptionCondition
    whereTaken = {"optimizer", ""},
    gathering = {"strategy", "",
                 [](const StrategyInfo &strategy) {
                   return strategy.gathersWeights();
                 }},
    gatheringOverRanks = {"strategy", "",
                          [](const StrategyInfo &strategy) {
                            return strategy.gathersWeights() &&
                                   strategy.over == CutOver::Ranks;
                          }},
    owning = {"strategy", "",
              [](const StrategyInfo &strategy) {
                return strategy.over == CutOver::Owner;
              }},
    shards = {"strategy", "",
              [](const StrategyInfo &strategy) { return strategy.shards(); }},
    withBatchnorm = {"batchnorm", "graph|on"},
    wholeUnits = {"recompute", "units|auto"},
    halves = {"param-dtype", "bf16|f16"},
    onGpus = {"target", "cuda|cuda-emulation"},
    onProcessors = {"target", "host|cuda-emulation"};

constexpr OptionInfo options[] = {
#define OPTION(field, name, group, ...)                                        \
  option<&Options::field>(name, Group::group, __VA_ARGS__),
#include "runtime/support/compile_options.def"
};

} // namespace

ArrayRef<OptionInfo> allOptions() { return options; }

const OptionInfo *findOption(StringRef name) {
  auto *it = llvm::find_if(
      options, [&](const OptionInfo &option) { return option.name == name; });
  return it == std::end(options) ? nullptr : it;
}

std::string meant(StringRef name, ArrayRef<StringRef> names) {
  return fsdpc::meant(name.str(), {names.begin(), names.end()});
}

bool isHyperparameter(const OptionInfo &option) {
  return option.condition.option == whereTaken.option;
}

} // namespace fsdpc::fsdp

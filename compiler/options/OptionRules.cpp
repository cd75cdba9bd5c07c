// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules that concern several options. An option that the others leave
// without effect is refused: ignoring it would quietly build another program
// than was meant.
#include "compiler/options/OptionTable.h"

#include "compiler/options/GroupOptions.h"
#include "compiler/options/Optimizers.h"
#include "compiler/options/OptionTypes.h"
#include "compiler/options/StrategyTable.h"
#include "runtime/support/concat.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace fsdpc::fsdp {

// An empty list of values stands for the strategies that meet the condition, or
// else for the optimizers that take the option.
SmallVector<StringRef> neededValues(const OptionInfo &option) {
  SmallVector<StringRef> values;
  if (option.condition.option.empty())
    return values;
  option.condition.values.split(values, '|', -1, /*KeepEmpty=*/false);
  if (option.condition.strategies) {
    for (const StrategyInfo &info : allStrategies())
      if (option.condition.strategies(info))
        values.push_back(info.name);
  } else if (values.empty())
    for (const OptimizerInfo &info : allOptimizers())
      if (takes(info, option.name))
        values.push_back(info.name);
  return values;
}

// Returns "'--a=x' or '--a=y'", or "'--a=x|y|z'" for many values.
static std::string listFlags(StringRef name, ArrayRef<StringRef> values) {
  auto flag = [&](StringRef value) {
    return ("'--" + name + "=" + value + "'").str();
  };
  if (values.size() > 2)
    return flag(llvm::join(values, "|"));
  return llvm::join(llvm::map_range(values, flag), " or ");
}

// The rules are torch.optim's, with the same bounds. It checks values and not
// what was given, since a group applies other values to the same options.
std::string checkHyperparameters(const CompileOptions &options) {
  auto isGiven = [&](StringRef name) {
    return llvm::is_contained(options.given, findOption(name));
  };
  if (options.nesterov && options.momentum() == 0)
    return "'--nesterov' needs '--momentum' above 0";
  if (options.nesterov && options.dampening != 0)
    return "'--nesterov' needs '--dampening' of 0, not " +
           printNumber(options.dampening);
  if (isGiven("dampening") && options.momentum() == 0)
    return "'--dampening' needs '--momentum' above 0";
  if (options.rho > 1)
    return "--rho '" + printNumber(options.rho) + "' is above 1";
  NumberPair etas = options.etas, sizes = options.stepSizes;
  if (!(0 < etas.first && etas.first < 1 && 1 < etas.second))
    return "--etas '" + OptionType<NumberPair>::print(etas) +
           "' are not a number between 0 and 1 and one above 1";
  if (sizes.first > sizes.second)
    return "--step-sizes '" + OptionType<NumberPair>::print(sizes) +
           "' have a minimum above the maximum";
  if (options.beta2Decay > 0)
    return "--beta2-decay '" + printNumber(options.beta2Decay) + "' is above 0";
  if (options.clipThreshold < 1)
    return "--d '" + printNumber(options.clipThreshold) + "' is below 1";
  return "";
}

// Returns true if the option has an effect beside the others. Units may have
// strategies besides that of --strategy. A user's optimizer has a name of its
// own, so the optimizer is asked itself.
static bool isMet(const OptionInfo &option, const CompileOptions &options) {
  const OptionCondition &condition = option.condition;
  if (condition.strategies)
    return llvm::any_of(strategiesIn(options), [&](Strategy strategy) {
      return condition.strategies(*strategy);
    });
  if (condition.values.empty())
    return takes(*options.optimizer.info, option.name);
  // A 16-bit type of the graph meets the conditions of that type.
  std::string text = findOption(condition.option)->print(options);
  StringRef value = text;
  value.consume_front("graph:");
  return llvm::is_contained(neededValues(option), value);
}

// Returns the error that something is not supported under one of the strategies
// that are used, which names the one to use instead; empty if it is supported.
static std::string
checkStrategies(const std::string &what, const CompileOptions &options,
                llvm::function_ref<bool(const StrategyInfo &)> isSupported) {
  for (Strategy strategy : strategiesIn(options)) {
    if (isSupported(*strategy))
      continue;
    bool mayReshard =
        strategy->over == CutOver::Group && strategy->gathersWeights();
    return what + " is not supported with '--strategy=" + strategy->name.str() +
           "'; use " + overAllRanks(strategy)->name.str() +
           (mayReshard ? " with '--reshard-to'" : "");
  }
  return "";
}

// A gather in blocks rounds anew each time, so it needs f32 masters, which are
// never rounded.
static std::string checkBlocks(const CompileOptions &options) {
  if (!options.sendsBlocks())
    return "";
  std::string flag =
      options.reducesBlocks()
          ? ("'--reduce-dtype=" + nameOf(options.reduceType) + "'").str()
          : ("'--gather-dtype=" + nameOf(options.gatherType) + "'").str();
  std::string fault =
      checkStrategies(flag, options, [&](const StrategyInfo &strategy) {
        return strategy.sendsBlocks(options.reducesBlocks());
      });
  if (!fault.empty())
    return fault;
  if (options.gatherType != BlockType::None && options.master == Master::None)
    return "'--gather-dtype=" + nameOf(options.gatherType).str() +
           "' needs f32 masters; omit '--master=none'";
  return "";
}

// Checks the numbers of ranks that the plan and the program are for.
static std::string checkRanks(const CompileOptions &options) {
  if (options.planRanksPerNode > 0 &&
      options.planRanks % options.planRanksPerNode)
    return concat("'--plan-ranks-per-node=", options.planRanksPerNode,
                  "' does not divide '--plan-ranks=", options.planRanks, "'");
  if (options.planCrossNodeGBs > 0 && options.planRanksPerNode == 0 &&
      options.machine.name.empty())
    return "'--plan-cross-node-gbs' has no effect without "
           "'--plan-ranks-per-node'";
  if (!options.accumulates() && options.reduce == ReductionTime::Step)
    return "'--reduce=step' has no effect with '--max-accumulate=1', since a "
           "step has one microbatch; omit it";
  if (options.reshardTo > options.maxRanks)
    return concat("'--reshard-to=", options.reshardTo,
                  "' is above '--max-ranks=", options.maxRanks,
                  "', the most ranks that the program will run on");
  // The default of --plan-ranks may exceed a small --max-ranks; only a user who
  // gives both has contradicted themselves.
  bool plansRanks = llvm::is_contained(options.given, findOption("plan-ranks"));
  if (plansRanks && options.reshardTo > 0 &&
      options.planRanks % options.reshardTo)
    return concat("'--reshard-to=", options.reshardTo,
                  "' does not divide '--plan-ranks=", options.planRanks, "'");
  if (plansRanks && options.planRanks > options.maxRanks)
    return concat("'--plan-ranks=", options.planRanks,
                  "' is above '--max-ranks=", options.maxRanks,
                  "', the most ranks that the program will run on");
  return "";
}

// A hook adds the part of gradients that it keeps to the next ones, so these
// must have the same scale. All ranks exchange what it sends, in f32.
static std::string checkResiduals(const CompileOptions &options) {
  const ReduceHook *hook = residualHook(options);
  if (!hook)
    return "";
  std::string flag = "'--reduce-hook=" + printHook(*hook) + "'";
  if (hook != &options.reduceHooks.back())
    return flag + " is what travels, so '--reduce-hook=" + printHook(hook[1]) +
           "' cannot follow it; give it last";
  std::string fault =
      checkStrategies(flag, options, [](const StrategyInfo &strategy) {
        return strategy.compresses();
      });
  if (!fault.empty())
    return fault;
  if (options.reduceType != ReduceType::F32)
    return flag + " sends f32; omit '--reduce-dtype=" +
           nameOf(options.reduceType).str() + "'";
  if (options.lossScale().isDynamic())
    return flag + " keeps parts of gradients for the next steps, whose loss "
                  "may have another scale; use bf16, or a constant "
                  "'--loss-scale'";
  return "";
}

// Checks conditions of the options that were given against the values of the
// others, given or not.
std::string checkOptions(const CompileOptions &options) {
  for (const OptionInfo *option : options.given) {
    const OptionCondition &condition = option->condition;
    // `--nesterov=false` asks for nothing, so it cannot lack an effect.
    bool off = option->isFlag && option->print(options) == "false";
    if (condition.option.empty() || off)
      continue;
    if (!isMet(*option, options))
      return "'--" + option->name.str() + "' has no effect with '--" +
             condition.option.str() + "=" +
             findOption(condition.option)->print(options) + "'; it needs " +
             listFlags(condition.option, neededValues(*option));
  }
  if (options.syncBatchnorm &&
      llvm::is_contained(options.given, findOption("buffers")))
    return "'--buffers' has no effect with '--sync-batchnorm', which gives all "
           "ranks the same statistics; omit it";
  std::string fault = checkHyperparameters(options);
  // Groups come after the options' own rules, so that an error names the flag
  // that is wrong and not a group that only inherits it.
  if (fault.empty())
    fault = checkGroups(options);
  if (!fault.empty())
    return fault;
  if (options.offload.activations && options.limitAllGathers > 0)
    return "'--limit-all-gathers' does not tell gathers of parameters from "
           "what '--offload=activations' reads back; omit it, or use "
           "'--memory-limit'";
  if (!options.gradients.empty() && options.lossScale().isOn())
    return "'--gradient' names gradients of a loss that no scale multiplies; "
           "omit '--loss-scale', and f16";
  if (!options.gradients.empty() && options.syncBatchnorm)
    return "'--gradient' names gradients that the graph computes from a rank's "
           "own statistics; omit '--sync-batchnorm'";
  if (options.master == Master::None && options.paramType != ElementType::bf16)
    return "'--master=none' needs '--param-dtype=bf16', not " +
           nameOf(options.paramType.type).str() +
           (options.paramType == ElementType::f16
                ? ", whose least number is far above that of f32"
                : "");
  if (fault = checkBlocks(options); !fault.empty())
    return fault;
  if (fault = checkResiduals(options); !fault.empty())
    return fault;
  return checkRanks(options);
}

} // namespace fsdpc::fsdp

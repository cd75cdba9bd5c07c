// The table of options, its use on texts and attributes, and the rules that
// concern several options. An attribute lists only what was given. An option
// that the others leave without effect is refused: ignoring it would quietly
// build another program than was meant.
#include "compiler/dialects/fsdp/OptionTable.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Optimizers.h"
#include "compiler/dialects/fsdp/OptionTypes.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace fsdpc::fsdp {
namespace {

using Group = OptionGroup;
using Options = CompileOptions;

// Makes the row of a field; the functions follow from the field's type.
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
      }};
}

// The values in an OptionCondition are spelt as `print` writes them.
constexpr NumberRange notNegative,
    fromOne = {1}, belowOne = {0, 1},
    anyNumber = {-std::numeric_limits<double>::infinity()};
// Optimizers.h says which hyperparameters an optimizer takes.
constexpr OptionCondition whereTaken = {"optimizer", ""},
                          onlyZero3 = {"strategy", "zero3"},
                          wholeUnits = {"recompute", "units"},
                          shards = {"strategy", "zero1|zero2|zero3"},
                          onGpus = {"target", "cuda|cuda-emulation"},
                          onProcessors = {"target", "host|cuda-emulation"};

// The order is that of the help. Names are also the keys of `fsdp.options` in
// dumps, so renaming one breaks dumps that users have kept.
constexpr OptionInfo table[] = {
    option<&Options::loss>(
        "loss", Group::Model, "NAME",
        "the graph's output that is the loss (its only scalar output)"),
    option<&Options::dims>("dim", Group::Model, "NAME=VALUE",
                           "fixes a symbolic dimension"),
    option<&Options::frozen>("frozen", Group::Model, "REGEX",
                             "parameters (names or aliases) without gradient"),
    option<&Options::trainable>(
        "trainable", Group::Model, "REGEX",
        "only these parameters are trained (less the frozen)"),
    option<&Options::batchnorm>(
        "batchnorm", Group::Model, "MODE",
        "statistics of the batch: on, off, or as the graph says"),
    option<&Options::dropout>(
        "dropout", Group::Model, "MODE",
        "dropout of ratio > 0: on, off, or as the graph says"),
    option<&Options::initRules>(
        "init-rule", Group::Model, "GLOB=RULE",
        "initial values: normal(m,s), uniform(a,b), zeros, ones"),
    option<&Options::embedWeights>("embed-weights", Group::Model, "",
                                   "puts the weights into the program"),

    option<&Options::strategy>(
        "strategy", Group::Sharding, "NAME",
        "what is sharded: nothing, optimizer, also gradients, also parameters"),
    option<&Options::strategyRules>(
        "strategy-of", Group::Sharding, "GLOB=NAME",
        "the strategy of the units of such a name; the first match counts"),
    option<&Options::persist>(
        "persist", Group::Sharding, "ELEMENTS",
        "parameters with fewer elements stay whole in zero3, never gathered",
        notNegative, onlyZero3),
    option<&Options::ignored>(
        "ignored", Group::Sharding, "REGEX",
        "parameters that units do not gather or reduce: as under ddp",
        notNegative, shards),
    option<&Options::units>(
        "units", Group::Sharding, "HOW",
        "repeated siblings, or one unit; large parameters of the root apart"),
    option<&Options::unitClasses>("unit-class", Group::Sharding, "GLOB",
                                  "a unit for each module of such a class"),
    option<&Options::unitScopes>("unit-scope", Group::Sharding, "REGEX",
                                 "a unit for each module of such a name"),
    option<&Options::unitSize>(
        "unit-size", Group::Sharding, "N",
        "cuts what is left to the root into units of N elements"),
    option<&Options::reduce>("reduce", Group::Sharding, "WHEN",
                             "when gradients are summed over ranks"),
    option<&Options::paramType>("param-dtype", Group::Sharding, "TYPE",
                                "the type that the model computes in"),
    option<&Options::reduceType>("reduce-dtype", Group::Sharding, "TYPE",
                                 "the type of gradients on the wire"),

    option<&Options::optimizer>(
        "optimizer", Group::Training, "NAME",
        "as in torch.optim, with its defaults; or a FILE.mlir with a program"),
    option<&Options::givenLr>("lr", Group::Training, "X", "learning rate"),
    option<&Options::givenBetas>("betas", Group::Training, "B1,B2",
                                 "decay of the two averages", belowOne,
                                 whereTaken),
    option<&Options::givenEps>("eps", Group::Training, "X",
                               "addend of the denominator", notNegative,
                               whereTaken),
    option<&Options::givenWeightDecay>("weight-decay", Group::Training, "X",
                                       "weight decay", notNegative, whereTaken),
    option<&Options::decoupledWeightDecay>(
        "decoupled-weight-decay", Group::Training, "",
        "decays the parameter, as adamw, and not the gradient", notNegative,
        whereTaken),
    option<&Options::givenMomentum>("momentum", Group::Training, "X",
                                    "momentum", notNegative, whereTaken),
    option<&Options::dampening>("dampening", Group::Training, "X",
                                "less of the gradient in the momentum",
                                anyNumber, whereTaken),
    option<&Options::nesterov>("nesterov", Group::Training, "",
                               "Nesterov's momentum", notNegative, whereTaken),
    option<&Options::amsgrad>("amsgrad", Group::Training, "",
                              "AMSGrad's maximum of the second average",
                              notNegative, whereTaken),
    option<&Options::momentumDecay>("momentum-decay", Group::Training, "X",
                                    "growth of the momentum", notNegative,
                                    whereTaken),
    option<&Options::rho>("rho", Group::Training, "X",
                          "decay of the averages of squares", notNegative,
                          whereTaken),
    option<&Options::lrDecay>("lr-decay", Group::Training, "X",
                              "decay of the learning rate", notNegative,
                              whereTaken),
    option<&Options::initialAccumulator>(
        "initial-accumulator-value", Group::Training, "X",
        "where the sum of squares starts", notNegative, whereTaken),
    option<&Options::givenAlpha>(
        "alpha", Group::Training, "X",
        "decay of the average of squares, or asgd's power of the rate",
        notNegative, whereTaken),
    option<&Options::centered>("centered", Group::Training, "",
                               "divides by the estimated variance", notNegative,
                               whereTaken),
    option<&Options::etas>("etas", Group::Training, "MINUS,PLUS",
                           "factors of the step sizes", notNegative,
                           whereTaken),
    option<&Options::stepSizes>("step-sizes", Group::Training, "MIN,MAX",
                                "smallest and largest step size", notNegative,
                                whereTaken),
    option<&Options::lambd>("lambd", Group::Training, "X",
                            "decay of the parameter", notNegative, whereTaken),
    option<&Options::t0>("t0", Group::Training, "STEP",
                         "where the averaging starts", notNegative, whereTaken),
    option<&Options::trust>("trust", Group::Training, "X",
                            "lars' coefficient of the ratio of norms",
                            notNegative, whereTaken),
    option<&Options::maximize>("maximize", Group::Training, "",
                               "ascends instead of descending"),
    option<&Options::noDecay>("no-decay", Group::Training, "REGEX",
                              "parameters without weight decay", notNegative,
                              whereTaken),
    option<&Options::groups>("group", Group::Training, "REGEX: KEY=X ...",
                             "lr and weight_decay of some parameters"),
    option<&Options::layerDecay>(
        "layer-decay", Group::Training, "X",
        "multiplies the learning rate from each layer to the one before it"),
    option<&Options::clipGradNorm>(
        "clip-grad-norm", Group::Training, "X",
        "largest norm of the gradient (0: as it is)"),
    option<&Options::clipGradValue>(
        "clip-grad-value", Group::Training, "X",
        "largest element of the gradient, after its norm is clipped (0: as it "
        "is)"),
    option<&Options::givenLossScale>(
        "loss-scale", Group::Training, "dynamic[,KEY=X...]|X|none",
        "factor of the loss's gradient, as torch's GradScaler, with the keys "
        "init, growth, backoff, interval (dynamic for f16)"),

    option<&Options::prefetch>("prefetch", Group::Schedule, "HOW",
                               "when all-gathers start"),
    option<&Options::limitAllGathers>(
        "limit-all-gathers", Group::Schedule, "K",
        "most units gathered at a time (0: as memory allows)", notNegative,
        onlyZero3),
    option<&Options::recompute>(
        "recompute", Group::Schedule, "WHAT",
        "activations computed again in the backward instead of kept"),
    option<&Options::recomputeScope>(
        "recompute-scope", Group::Schedule, "REGEX",
        "units that are computed again; the others as by cheap", notNegative,
        wholeUnits),
    option<&Options::memoryLimit>(
        "memory-limit", Group::Schedule, "SIZE",
        "a rank's peak at --plan-ranks, kept or refused"),
    option<&Options::planRanks>("plan-ranks", Group::Schedule, "N",
                                "ranks that costs and peak are evaluated for",
                                fromOne),
    option<&Options::planThreads>(
        "plan-threads", Group::Schedule, "T",
        "threads per rank that costs and peak are evaluated for", fromOne),
    option<&Options::maxRanks>("max-ranks", Group::Schedule, "N",
                               "most ranks that the program will run on",
                               fromOne),

    option<&Options::target>(
        "target", Group::Output, "NAME",
        "the device; the emulation runs a CUDA program's runtime and kernels "
        "on host threads, for tests"),
    option<&Options::gpus>(
        "gpu-arch", Group::Output, "LIST",
        "GPUs that kernels are compiled for; PTX of the newest goes along",
        notNegative, onGpus),
    option<&Options::attention>(
        "attention", Group::Output, "HOW",
        "on CUDA: cuDNN's fused attention where it takes the shapes, or "
        "batched products and a softmax",
        notNegative, onGpus),
    option<&Options::cpu>("cpu", Group::Output, "NAME",
                          "the processor of host kernels", notNegative,
                          onProcessors),
    option<&Options::poison>(
        "poison", Group::Output, "",
        "a debug plan: fills every slot with NaN when its life ends"),
};

// Remembers that an option was given, once for repeated flags. Only given
// options go into the attribute and are checked for having an effect.
void markGiven(const OptionInfo &option, CompileOptions &options) {
  if (!llvm::is_contained(options.given, &option))
    options.given.push_back(&option);
}

} // namespace

ArrayRef<OptionInfo> allOptions() { return table; }

const OptionInfo *findOption(StringRef name) {
  auto *it = llvm::find_if(
      table, [&](const OptionInfo &option) { return option.name == name; });
  return it == std::end(table) ? nullptr : it;
}

// Levenshtein distance; the first of several nearest names wins.
StringRef nearestOption(StringRef name) {
  return llvm::min_element(table,
                           [&](const auto &a, const auto &b) {
                             return name.edit_distance(a.name) <
                                    name.edit_distance(b.name);
                           })
      ->name;
}

std::string setOption(const OptionInfo &option, StringRef text,
                      CompileOptions &options) {
  std::string fault = option.parse(option, text, options);
  if (!fault.empty())
    return ("--" + option.name + " '" + text + "' " + fault).str();
  markGiven(option, options);
  return "";
}

// Stops at the first fault. Keys come in the dictionary's sorted order, so the
// same dump gives the same message.
std::string readOptions(DictionaryAttr attribute, CompileOptions &options) {
  std::string error;
  llvm::raw_string_ostream stream(error);
  for (NamedAttribute entry : attribute) {
    StringRef name = entry.getName();
    const OptionInfo *option = findOption(name);
    if (!option) {
      stream << "there is no option '" << name << "'; did you mean '"
             << nearestOption(name) << "'?";
      return error;
    }
    std::string fault = option->read(*option, entry.getValue(), options);
    if (!fault.empty()) {
      stream << "'" << name << "' = " << entry.getValue() << " " << fault;
      return error;
    }
    markGiven(*option, options);
  }
  return error;
}

// Options at their defaults are left out, so a default that changes in a new
// version of the compiler also changes for an old dump.
DictionaryAttr writeOptions(const CompileOptions &options,
                            MLIRContext *context) {
  NamedAttrList list;
  for (const OptionInfo *option : options.given)
    if (Attribute value = option->write(options, context))
      list.set(option->name, value);
  return list.getDictionary(context);
}

// An empty list of values stands for the optimizers that take the option.
SmallVector<StringRef> neededValues(const OptionInfo &option) {
  SmallVector<StringRef> values;
  if (option.condition.option.empty())
    return values;
  option.condition.values.split(values, '|', -1, /*KeepEmpty=*/false);
  if (values.empty())
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

// Checks the rules of torch.optim that concern several hyperparameters, or one
// that has a limit of its own.
static std::string checkHyperparameters(const CompileOptions &options) {
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
  if (options.isCuda() && infoOf(options.optimizer).ofWholeParameters)
    return "'--optimizer=" + options.optimizer.name() +
           "' takes norms of whole parameters, which '--target=" +
           findOption("target")->print(options) + "' does not compute yet";
  return "";
}

// Returns true if the option has an effect beside the others. Units may have
// strategies besides that of --strategy. A user's optimizer has a name of its
// own, so the optimizer is asked itself.
static bool isMet(const OptionInfo &option, const CompileOptions &options) {
  const OptionCondition &condition = option.condition;
  if (condition.values.empty())
    return takes(infoOf(options.optimizer), option.name);
  SmallVector<std::string> used = {
      findOption(condition.option)->print(options)};
  if (condition.option == "strategy")
    for (const StrategyRule &rule : options.strategyRules)
      used.push_back(nameOf(rule.strategy).str());
  SmallVector<StringRef> needed = neededValues(option);
  return llvm::any_of(used, [&](const std::string &value) {
    return llvm::is_contained(needed, value);
  });
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
  if (options.lr() == 0 &&
      llvm::any_of(options.groups, [](const ParameterGroup &group) {
        return group.lr.has_value();
      }))
    return "'--group' with an lr needs '--lr' above 0, since the program keeps "
           "their ratio";
  if (llvm::any_of(options.groups,
                   [](const ParameterGroup &group) {
                     return group.weightDecay.has_value();
                   }) &&
      !takes(infoOf(options.optimizer), "weight-decay"))
    return "'--group' sets weight_decay, which '--optimizer=" +
           options.optimizer.name() + "' does not take";
  std::string fault = checkHyperparameters(options);
  if (!fault.empty())
    return fault;
  if (options.isCuda() && options.usesF16())
    return "f16 ('--param-dtype' or '--reduce-dtype') is not supported with "
           "'--target=" +
           findOption("target")->print(options) +
           "'; use bf16, which needs no loss scale";
  if (options.isCuda() && options.lossScale().isOn())
    return "'--loss-scale' is not supported with '--target=" +
           findOption("target")->print(options) + "'";
  // The default of --plan-ranks may exceed a small --max-ranks; only a user who
  // gives both has contradicted themselves.
  bool plansRanks = llvm::is_contained(options.given, findOption("plan-ranks"));
  if (plansRanks && options.planRanks > options.maxRanks)
    return "'--plan-ranks=" + std::to_string(options.planRanks) +
           "' is above '--max-ranks=" + std::to_string(options.maxRanks) +
           "', the most ranks that the program will run on";
  return "";
}

CompileOptions CompileOptions::of(ModuleOp module) {
  CompileOptions options;
  if (auto attribute =
          module->getAttrOfType<DictionaryAttr>(FSDPDialect::kOptionsAttr)) {
    // Nothing is cached: each call parses the attribute anew.
    [[maybe_unused]] std::string error = readOptions(attribute, options);
    assert(error.empty() && "the dialect verifies its attribute");
  }
  return options;
}

} // namespace fsdpc::fsdp

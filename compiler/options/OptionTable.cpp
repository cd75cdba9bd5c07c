// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of options, and how an option is found in it. OptionValues.cpp uses
// it on texts and attributes; OptionRules.cpp checks several options together.
// A new option is a field of CompileOptions and a row here.
#include "compiler/options/OptionTable.h"

#include "compiler/options/OptionTypes.h"
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
    anyNumber = {-std::numeric_limits<double>::infinity()};
// Conditions that several rows share. checkOptions refuses an option outside of
// its condition. Optimizers.h says which hyperparameters an optimizer takes.
constexpr OptionCondition
    whereTaken = {"optimizer", ""},
    gathering = {"strategy", "zero3|hybrid"},
    withBatchnorm = {"batchnorm", "graph|on"},
    wholeUnits = {"recompute", "units|auto"},
    halves = {"param-dtype", "bf16|f16"},
    shards = {"strategy", "zero1|zero2|zero3|hybrid|hybrid_zero2|oss"},
    onGpus = {"target", "cuda|cuda-emulation"},
    onProcessors = {"target", "host|cuda-emulation"};

// The order is that of the help. Names are also the keys of `fsdp.options` in
// dumps, so renaming one breaks dumps that users have kept.
constexpr OptionInfo table[] = {
    option<&Options::loss>(
        "loss", Group::Model, "NAME[+X*NAME...]",
        "the graph's output that is the loss, or several with factors, as in "
        "a+0.1*b (its only scalar output)"),
    option<&Options::lossReduction>(
        "loss-reduction", Group::Model, "HOW",
        "takes the mean or the sum of a loss that has an element per sample "
        "or target"),
    option<&Options::gradients>(
        "gradient", Group::Model, "OUTPUT=PARAMETER",
        "an output of the graph that is a parameter's gradient (each with one "
        "'*', or none); the compiler then differentiates nothing"),
    option<&Options::keptOutputs>(
        "keep-output", Group::Model, "NAME",
        "a further tensor of the graph that the program can report (--metric, "
        "--predict)"),
    option<&Options::dims>("dim", Group::Model, "NAME=VALUE",
                           "fixes a symbolic dimension; several values, as in "
                           "T=128,256, make buckets of one program"),
    option<&Options::frozen>("frozen", Group::Model, "REGEX",
                             "parameters (names or aliases) without gradient"),
    option<&Options::trainable>(
        "trainable", Group::Model, "REGEX",
        "only these parameters are trained (less the frozen)"),
    option<&Options::batchnorm>(
        "batchnorm", Group::Model, "MODE",
        "statistics of the batch: on, off, or as the graph says"),
    option<&Options::syncBatchnorm>(
        "sync-batchnorm", Group::Model, "",
        "statistics of the batch are taken over all ranks (SyncBatchNorm)",
        notNegative, withBatchnorm),
    option<&Options::buffers>(
        "buffers", Group::Model, "MODE",
        "running statistics take those of all ranks in turn, each rank its "
        "own, those of rank 0, or the mean of all ranks'",
        notNegative, withBatchnorm),
    option<&Options::dropout>(
        "dropout", Group::Model, "MODE",
        "dropout of ratio > 0: on, off, or as the graph says"),
    option<&Options::initRules>(
        "init-rule", Group::Model, "GLOB=RULE",
        "initial values as by torch.nn.init: normal(m,s), trunc_normal(m,s), "
        "uniform(a,b), constant(x), zeros, ones, xavier_uniform, "
        "xavier_normal, kaiming_uniform(slope), kaiming_normal, orthogonal; "
        "the first match counts"),
    option<&Options::embedWeights>("embed-weights", Group::Model, "",
                                   "puts the weights into the program"),

    // ---- sharding ----
    option<&Options::strategy>(
        "strategy", Group::Sharding, "NAME",
        "what is sharded: nothing, optimizer states, gradients as well, "
        "parameters as well; hybrid: within groups of ranks (--shard-group of "
        "the program); oss: states by whole parameters, each on one rank"),
    option<&Options::strategyRules>(
        "strategy-of", Group::Sharding, "GLOB=NAME",
        "the strategy of units whose names match; the first match wins"),
    option<&Options::reshardTo>(
        "reshard-to", Group::Sharding, "G",
        "zero3's parameters are also kept in groups of G ranks, from the "
        "forward to the backward, which gathers them there (0: not kept; "
        "--shard-group of the program: other groups)",
        notNegative, {"strategy", "zero3"}),
    option<&Options::persist>(
        "persist", Group::Sharding, "ELEMENTS",
        "parameters with fewer elements stay whole in zero3, never gathered",
        notNegative, gathering),
    option<&Options::ignored>(
        "ignored", Group::Sharding, "REGEX",
        "parameters that units do not gather or reduce: as under ddp",
        notNegative, shards),
    option<&Options::units>(
        "units", Group::Sharding, "HOW",
        "repeated siblings, or one unit; large parameters of the root apart"),
    option<&Options::unitClasses>(
        "unit-class", Group::Sharding, "GLOB",
        "makes each module of a matching class a unit"),
    option<&Options::unitScopes>("unit-scope", Group::Sharding, "REGEX",
                                 "makes each module of a matching name a unit"),
    option<&Options::unitSize>(
        "unit-size", Group::Sharding, "N",
        "splits the parameters left in the root into units of N elements"),
    option<&Options::layout>(
        "layout", Group::Sharding, "KIND",
        "flat: the parameters of a unit are cut over ranks in one flat buffer; "
        "parameter: each by itself, and gathered together all the same"),
    option<&Options::layoutSize>(
        "layout-size", Group::Sharding, "N",
        "cuts the parameters of a unit into flat buffers of at most N "
        "elements, each reduced by itself (0: not cut)",
        notNegative, {"layout", "flat"}),
    option<&Options::bucketSize>(
        "bucket-size", Group::Sharding, "N",
        "most elements of several parameters that oss reduces to their owners "
        "at once (0: each by itself)",
        notNegative, {"strategy", "oss"}),
    option<&Options::maxAccumulate>(
        "max-accumulate", Group::Sharding, "K",
        "most microbatches per step that the program will run (--accumulate); "
        "1 saves the memory in which ddp adds up gradients, and with "
        "--max-ranks=1 keeps all gradients in the type of --param-dtype (0: "
        "any number)"),
    option<&Options::reduce>("reduce", Group::Sharding, "WHEN",
                             "when gradients are summed over ranks"),
    option<&Options::paramType>("param-dtype", Group::Sharding, "TYPE",
                                "the type that the model computes in"),
    option<&Options::master>(
        "master", Group::Sharding, "TYPE",
        "f32: the optimizer updates an f32 copy of each parameter; none: it "
        "rounds bf16 parameters stochastically"),
    option<&Options::keptF32>(
        "keep-f32", Group::Sharding, "GLOB",
        "modules, by class or name, that compute in f32 all the same",
        notNegative, halves),
    option<&Options::gatherType>(
        "gather-dtype", Group::Sharding, "TYPE",
        "gathers parameters in blocks of 8 bits, each with a scale (ZeRO++'s "
        "qwZ); none: in the type of the weights",
        notNegative, shards),
    option<&Options::reduceType>(
        "reduce-dtype", Group::Sharding, "TYPE",
        "the type of gradients on the wire; i8, f8e4m3 and i4: blocks with a "
        "scale (ZeRO++'s qgZ)"),
    option<&Options::reduceHooks>(
        "reduce-hook", Group::Sharding, "HOOK",
        "changes each rank's gradients before they are summed, in the order "
        "given: cast=bf16|f16, clip-value=X, predivide=X, "
        "average=before|after, zero-nonfinite, quantize=i8[,block=N], "
        "FILE.mlir:@FUNCTION, and last top-k=X% or power-sgd=RANK"),
    option<&Options::offload>(
        "offload", Group::Sharding, "WHAT,...",
        "keeps each rank's part of the optimizer's states, parameters or "
        "gradients, or the activations that the backward reads, in a file and "
        "not in memory (--offload-dir of the program), on a GPU in pinned host "
        "memory; activations under --memory-limit as far as it requires"),

    // ---- training ----
    option<&Options::optimizer>(
        "optimizer", Group::Training, "NAME",
        "as in torch.optim, with its defaults; or a FILE.mlir with a program"),
    option<&Options::givenLr>("lr", Group::Training, "X", "learning rate"),
    option<&Options::givenBetas>("betas", Group::Training, "B1,B2",
                                 "decay of the two averages", belowOne,
                                 whereTaken),
    option<&Options::givenEps>("eps", Group::Training, "X",
                               "added to the denominator", notNegative,
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
                                "reduces the gradient's share of the momentum",
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
    option<&Options::beta2Decay>(
        "beta2-decay", Group::Training, "X",
        "exponent of the step in the decay of the average of squares",
        anyNumber, whereTaken),
    option<&Options::eps1>(
        "eps1", Group::Training, "X",
        "adafactor's lower bound on the root of the average of "
        "squares, the first of torch's eps",
        notNegative, whereTaken),
    option<&Options::clipThreshold>(
        "d", Group::Training, "X",
        "adafactor's largest root mean square of an update", notNegative,
        whereTaken),
    option<&Options::nsCoefficients>(
        "ns-coefficients", Group::Training, "A,B,C",
        "of Newton and Schulz's steps, by which muon makes singular values "
        "equal",
        anyNumber, whereTaken),
    option<&Options::nsSteps>("ns-steps", Group::Training, "N",
                              "number of these steps", NumberRange{1, 100},
                              whereTaken),
    option<&Options::adjustLr>(
        "adjust-lr-fn", Group::Training, "HOW",
        "how muon's learning rate depends on a matrix's shape", notNegative,
        whereTaken),
    option<&Options::muonType>(
        "muon-dtype", Group::Training, "TYPE",
        "the type that muon's products are rounded to: f32, or bf16 as torch "
        "does",
        notNegative, whereTaken),
    option<&Options::maximize>("maximize", Group::Training, "",
                               "ascends instead of descending"),
    option<&Options::noDecay>("no-decay", Group::Training, "REGEX",
                              "parameters without weight decay", notNegative,
                              whereTaken),
    option<&Options::groups>("group", Group::Training, "REGEX: KEY=X ...",
                             "optimizer, lr and other hyperparameters, with "
                             "torch's names, of some parameters"),
    option<&Options::layerDecay>(
        "layer-decay", Group::Training, "X",
        "factor of the learning rate from each layer to the one before it"),
    option<&Options::clipGradNorm>(
        "clip-grad-norm", Group::Training, "X",
        "clips the norm of the gradient to X (0: no clipping)"),
    option<&Options::clipGradValue>(
        "clip-grad-value", Group::Training, "X",
        "clips each element of the gradient to -X..X, after its norm (0: "
        "no clipping)"),
    option<&Options::ema>(
        "ema", Group::Training, "DECAY",
        "keeps an average of the parameters, decay times itself plus the rest "
        "times the new ones (0: none); the program saves it by --save-ema",
        belowOne),
    option<&Options::givenLossScale>(
        "loss-scale", Group::Training, "dynamic[,KEY=X...]|X|none",
        "factor of the loss's gradient, as torch's GradScaler, with the keys "
        "init, growth, backoff, interval (dynamic for f16)"),

    // ---- schedule ----
    option<&Options::prefetch>("prefetch", Group::Schedule, "HOW",
                               "when all-gathers start"),
    option<&Options::schedule>(
        "schedule", Group::Schedule, "FILE",
        "places the collectives as in this table, which --schedule-table has "
        "written and you have edited"),
    option<&Options::limitAllGathers>(
        "limit-all-gathers", Group::Schedule, "K",
        "most units gathered at a time (0: as memory allows)", notNegative,
        gathering),
    option<&Options::recompute>(
        "recompute", Group::Schedule, "WHAT",
        "activations recomputed in the backward instead of being kept"),
    option<&Options::recomputeScope>(
        "recompute-scope", Group::Schedule, "REGEX",
        "units to recompute; the others are treated as by cheap", notNegative,
        wholeUnits),
    option<&Options::memoryLimit>(
        "memory-limit", Group::Schedule, "SIZE",
        "a rank's peak at --plan-ranks, kept or refused"),
    option<&Options::machine>(
        "machine", Group::Schedule, "NAME|FILE",
        "the machine that costs are computed for: a committed one, or a .json "
        "file, which 'fsdpc calibrate' writes (the target's)"),
    option<&Options::planRanks>("plan-ranks", Group::Schedule, "N",
                                "ranks that costs and peak are evaluated for",
                                fromOne),
    option<&Options::planThreads>(
        "plan-threads", Group::Schedule, "T",
        "threads per rank that costs and peak are evaluated for", fromOne),
    option<&Options::planRanksPerNode>(
        "plan-ranks-per-node", Group::Schedule, "R",
        "ranks of a node, and of a shard group without --reshard-to, that "
        "costs and peak are evaluated for (0: all)"),
    option<&Options::planCrossNodeGBs>(
        "plan-cross-node-gbs", Group::Schedule, "X",
        "10^9 bytes per second between nodes, for costs (0: the machine's)"),
    option<&Options::maxRanks>("max-ranks", Group::Schedule, "N",
                               "most ranks that the program will run on",
                               fromOne),

    // ---- output ----
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
    option<&Options::math>(
        "math", Group::Output, "HOW",
        "on CUDA: kernels compute with the host's arithmetic (exact), or with "
        "approximate instructions, and bf16 products compute what surrounds "
        "them (fast); auto: fast with --param-dtype=bf16",
        notNegative, onGpus),
    option<&Options::cpu>("cpu", Group::Output, "NAME",
                          "the processor of host kernels", notNegative,
                          onProcessors),
    option<&Options::poison>(
        "poison", Group::Output, "",
        "a debug plan: fills every slot with NaN when its life ends"),
};

} // namespace

ArrayRef<OptionInfo> allOptions() { return table; }

const OptionInfo *findOption(StringRef name) {
  auto *it = llvm::find_if(
      table, [&](const OptionInfo &option) { return option.name == name; });
  return it == std::end(table) ? nullptr : it;
}

std::string meant(StringRef name, ArrayRef<StringRef> names) {
  return fsdpc::meant(name.str(), {names.begin(), names.end()});
}

bool isHyperparameter(const OptionInfo &option) {
  return option.condition.option == whereTaken.option;
}

} // namespace fsdpc::fsdp

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The options of a compile, as passes read them.
//
// A pass says `CompileOptions options = CompileOptions::of(module)` and reads
// fields, so that a misspelt option does not compile. The values lie in the
// module's attribute `fsdp.options`, which makes a dump complete; an absent key
// means the default written below. OptionTable.h connects each field with its
// flag, its key in the attribute and its legal values.
#pragma once

#include "compiler/schedule/machine.h"
#include "compiler/schedule/problem.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/element_type.h"
#include "runtime/abi/loss_scale.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc {
class CompressionInfo;
}

namespace fsdpc::fsdp {

struct OptionInfo;
struct OptimizerInfo;
struct StrategyInfo;

/// Says how Dropout and BatchNormalization behave: as the graph's training_mode
/// says, or always or never in training mode. torch's exports of a model in
/// train() mode omit the attribute, hence the default On.
enum class TrainingMode { Graph, On, Off };
/// The statistics that the model's running ones take in a microbatch: those of
/// all ranks one after the other, each rank's own, those of rank 0, or the mean
/// over ranks.
enum class BufferMode { Sequential, Local, Broadcast, Average };
/// Says how a loss of several elements becomes the number that is trained: it
/// does not, or by its mean or sum, as torch's `reduction`.
enum class LossReduction { None, Mean, Sum };
/// What a loss that is a mean over targets is a mean of (--loss-mean).
enum class LossMean {
  Step,      ///< all targets of a step
  Microbatch ///< the means of a step's microbatches
};
/// A row of the table of strategies (StrategyTable.h), which lives as long as
/// the program.
using Strategy = const StrategyInfo *;
/// Returns the strategy that shards most.
Strategy defaultStrategy();
/// Says how modules become units: repeated siblings each become one, or the
/// whole model is one unit.
enum class UnitRule { Auto, Whole };
/// The parameters that a layout joins in one buffer: those of a unit, as
/// PyTorch's FSDP1, or one parameter, as FSDP2.
enum class LayoutKind { Flat, Parameter };
/// When gradients are summed over ranks. Step communicates once per step, and
/// keeps whole gradients on every rank in between.
enum class ReductionTime { Microbatch, Step };
/// The type in which gradients travel between ranks: a float, or the blocks
/// (runtime/abi/blocks.h) of ZeRO++'s qgZ.
enum class ReduceType { F32, BF16, F16, I8, F8E4M3, I4 };
/// Says what lies in a file and not in memory, or for a GPU in pinned memory:
/// the optimizer's states, parameters and gradients of a rank's shards. On the
/// host also the activations that the backward reads.
struct OffloadSet {
  bool optimizer = false, parameters = false, gradients = false;
  bool activations = false;
  bool ofShards() const { return optimizer || parameters || gradients; }
};
/// The type in which parameters lie beside the one that the model computes in:
/// None where they are kept in the latter alone.
enum class Master { F32, None };
/// Says which activations the backward computes again. Auto is Cheap and, under
/// a memory limit, also as many ops of units as the limit demands.
enum class RecomputeLevel { None, Cheap, Units, Auto };
/// Says how Muon's learning rate depends on a matrix's shape, torch's
/// adjust_lr_fn: by sqrt(max(1, rows / columns)), or by 0.2 sqrt(max(rows,
/// columns)).
enum class LrAdjustment { Original, MatchRmsAdamW };
/// The type that the products of orthogonalised matrices are rounded to.
enum class ProductType { F32, BF16 };
/// CudaEmulation runs the CUDA runtime and kernels on host threads, for tests.
enum class Target { Host, Cuda, CudaEmulation };
/// Architectures of GPUs, oldest first.
enum class Gpu { SM80, SM86, SM89, SM90, SM100, SM120 };
/// Says how attention is computed on CUDA: by cuDNN where it takes the shapes
/// (Auto), by cuDNN, or by batched products and a softmax.
enum class AttentionKernel { Auto, Cudnn, Products };
/// Says how kernels for GPUs compute tanh, exp and divisions in f32: with the
/// host's arithmetic, or with the GPU's approximate instructions. Auto is Fast
/// if the model computes in bf16, which rounds more than they do.
enum class Math { Auto, Exact, Fast };
/// Microarchitecture levels of the x86-64 ABI; Native is this machine's.
enum class Cpu { Native, X86_64_V3, X86_64_V4 };

/// Returns the name of a value of one of the enums above, or of
/// schedule::Prefetch or ElementType, as it stands in flags and
/// dumps.
template <typename Enum> llvm::StringRef nameOf(Enum value);

/// Returns the type of tensors' elements that an option names.
mlir::FloatType floatType(ElementType, mlir::MLIRContext *);

/// An optimizer. For the user's own, the file that it was read from and the
/// file's text, so that a dump does not depend on the file.
struct OptimizerChoice {
  /// Chooses the default.
  OptimizerChoice();
  explicit OptimizerChoice(const OptimizerInfo &info) : info(&info) {}
  OptimizerChoice(std::string file, std::string text);

  /// A row of the table (Optimizers.h); never null.
  const OptimizerInfo *info;
  std::string file, text; ///< empty if it is not the user's own

  bool isUser() const;
  /// Returns the optimizer's name, or that of the file.
  std::string name() const;
};

/// The type that the model computes in. With `ofGraph` each op has the type
/// that the model's file gives it, f32 or `type`, which the import sets to the
/// 16-bit type that it finds there; before it stands for any.
struct ParamType {
  ElementType type = ElementType::f32;
  bool ofGraph = false;

  operator ElementType() const { return type; }
};

/// A file that is read when the option is set: its name and its text, so that a
/// dump does not depend on the file. No name means that there is none.
struct TextFile {
  std::string name, text;
};

/// A machine of the cost model (compiler/schedule/machine.h): a JSON file, or
/// one of the committed ones.
struct MachineFile : TextFile {};

/// A table that places the collectives (compiler/schedule/table.h).
struct ScheduleFile : TextFile {};

/// Two numbers, such as the decay rates of Adam's averages.
struct NumberPair {
  double first = 0, second = 0;
};

/// Three numbers: the coefficients of a polynomial.
struct NumberTriple {
  double a = 0, b = 0, c = 0;
};

/// A limit in bytes; 0 means none.
struct ByteLimit {
  int64_t bytes = 0;
};

/// Regular expressions on names (see Names.h).
struct Patterns {
  std::vector<std::string> texts;
};

/// The initial values of the parameters whose name matches the glob. The rule
/// is one of runtime/abi/init_rule.h.
struct InitRule {
  std::string glob, rule;
};

/// Parameters with an optimizer or hyperparameters of their own: those whose
/// name the expression matches.
struct ParameterGroup {
  std::string pattern;
  /// Names of options and the texts of their values, in the order given.
  std::vector<std::pair<std::string, std::string>> settings;

  /// Returns the text of the option's value, or null if it is not given.
  const std::string *find(llvm::StringRef option) const;
};

/// An output of the graph that is the gradient of a parameter. Each may have
/// one '*', which stands for the same text in both.
struct GradientRule {
  std::string output, parameter;
};

/// The strategy of the units whose name matches the glob.
struct StrategyRule {
  std::string glob;
  Strategy strategy;
};

/// A function of a microbatch's gradient, applied before it is reduced.
struct ReduceHook {
  enum class Kind {
    Cast,          ///< rounds to a narrow type
    ClipValue,     ///< bounds each element
    Predivide,     ///< divides here, and multiplies after the reduction
    AverageBefore, ///< divides by the number of microbatches here
    AverageAfter,  ///< after the reduction, which is the default
    ZeroNonfinite, ///< replaces elements that are not finite by 0
    Quantize,      ///< rounds to 8-bit integers with a scale per block
    Compress,      ///< sends less than the gradient, and keeps the rest
    Program        ///< a function of the user's
  };
  Kind kind = Kind::Cast;
  ElementType type = ElementType::bf16; ///< Cast
  double number = 0;   ///< the limit, the divisor, or Compress's value
  int32_t block = 256; ///< Quantize, in elements
  const CompressionInfo *compression = nullptr; ///< Compress
  std::string file, function, text; ///< Program: the text is the file's

  /// Returns true if the hook decides what travels, and keeps the rest.
  bool keepsResidual() const { return kind == Kind::Compress; }
};

/// All options of a compile, with their defaults. Copied freely: passes and
/// groups change copies of their own.
struct CompileOptions {
  /// The model.
  /// A tensor, or a sum of tensors with factors, "a+0.1*b" (see
  /// GraphImporter::findLoss). Empty: the only scalar output.
  std::string loss;
  LossReduction lossReduction =
      LossReduction::None; ///< of each tensor of `loss`
  LossMean lossMean = LossMean::Step;
  std::vector<GradientRule> gradients;  ///< none: the compiler differentiates
  std::vector<std::string> keptOutputs; ///< tensors that a program can report
  std::map<std::string, int64_t> dims;  ///< symbolic dimensions, in elements
  Patterns frozen;
  Patterns trainable; ///< if given, all other parameters are frozen
  TrainingMode batchnorm = TrainingMode::On;
  bool syncBatchnorm = false; ///< statistics of the batch are of all ranks
  BufferMode buffers = BufferMode::Sequential;
  TrainingMode dropout = TrainingMode::On;
  std::vector<InitRule> initRules; ///< the first match counts
  bool embedWeights = false;

  /// Sharding.
  Strategy strategy = defaultStrategy();
  std::vector<StrategyRule> strategyRules; ///< the first match counts
  int64_t reshardTo = 0; ///< ranks of a group; 0: no secondary shards
  int64_t persist = 0;   ///< elements; smaller parameters are never gathered
  Patterns ignored;      ///< parameters that are not sharded
  UnitRule units = UnitRule::Auto;
  LayoutKind layout = LayoutKind::Flat;
  std::vector<std::string> unitClasses; ///< globs
  Patterns unitScopes;
  int64_t unitSize = 0;                  ///< elements; 0: the root is one unit
  int64_t layoutSize = 0;                ///< elements; 0: no limit
  int64_t bucketSize = int64_t(1) << 23; ///< elements; 0: no buckets
  int64_t maxAccumulate = 0; ///< microbatches of a rank per step; 0: no limit
  ReductionTime reduce = ReductionTime::Microbatch;
  OffloadSet offload;
  Master master = Master::F32;
  ParamType paramType;
  std::vector<std::string> keptF32; ///< globs of modules
  bool castInputs = false;
  BlockType gatherType = BlockType::None; ///< None: the type of the weights
  ReduceType reduceType = ReduceType::F32;
  std::vector<ReduceHook> reduceHooks; ///< in the order of application

  /// Training. A number that was not given has the optimizer's own default,
  /// which the functions below return.
  OptimizerChoice optimizer;
  std::optional<double> givenLr, givenEps, givenWeightDecay, givenMomentum,
      givenAlpha;
  std::optional<NumberPair> givenBetas;
  double dampening = 0;
  double rho = 0.9;                                       ///< adadelta
  double lrDecay = 0;                                     ///< adagrad
  double initialAccumulator = 0;                          ///< adagrad
  double momentumDecay = 4e-3;                            ///< nadam
  NumberPair etas = {0.5, 1.2};                           ///< rprop
  NumberPair stepSizes = {1e-6, 50};                      ///< rprop
  double lambd = 1e-4;                                    ///< asgd
  double t0 = 1e6;                                        ///< asgd, in steps
  double trust = 1e-3;                                    ///< lars
  double beta2Decay = -0.8;                               ///< adafactor
  double eps1 = 0x1p-23;                                  ///< adafactor
  double clipThreshold = 1;                               ///< adafactor
  NumberTriple nsCoefficients = {3.4445, -4.775, 2.0315}; ///< muon
  int64_t nsSteps = 5;                                    ///< muon
  LrAdjustment adjustLr = LrAdjustment::Original;         ///< muon
  ProductType productType = ProductType::F32;             ///< muon
  bool nesterov = false;
  bool amsgrad = false;
  bool centered = false; ///< rmsprop
  bool decoupledWeightDecay = false;
  bool maximize = false;
  Patterns noDecay;
  std::vector<ParameterGroup> groups; ///< the first match counts
  double layerDecay = 1; ///< factor of the learning rate from a unit to the one
                         ///< before it
  double clipGradNorm = 0;  ///< 0: not clipped
  double clipGradValue = 0; ///< 0: not clipped
  double ema = 0; ///< decay of the parameters' average; 0: there is none
  std::optional<LossScale> givenLossScale; ///< see lossScale()

  /// The schedule.
  schedule::Prefetch prefetch = schedule::Prefetch::Auto;
  ScheduleFile schedule;       ///< takes the solver's place
  MachineFile machine;         ///< none: the target's default
  int64_t limitAllGathers = 0; ///< units gathered at a time; 0: no limit
  RecomputeLevel recompute = RecomputeLevel::Auto;
  Patterns recomputeScope; ///< units for RecomputeLevel::Units; empty: all
  ByteLimit memoryLimit;   ///< of a rank's peak, at planRanks
  int64_t planRanks = 8;
  int64_t planThreads = 1;      ///< per rank
  int64_t planRanksPerNode = 0; ///< also of a shard group; 0: all
  double planCrossNodeGBs = 0;  ///< 10⁹ bytes/s; 0: as within a node
  int64_t maxRanks = 1024;

  /// The program.
  Target target = Target::Host;
  std::vector<Gpu> gpus = {Gpu::SM90}; ///< ascending, without duplicates
  AttentionKernel attention = AttentionKernel::Auto;
  Math math = Math::Auto; ///< see isFast()
  Cpu cpu = Cpu::Native;
  bool poison = false;

  /// The options that were set, in the order of the first setting. The fields
  /// of all others have their defaults. The order does not matter to
  /// `fsdp.options`, whose keys are sorted.
  std::vector<const OptionInfo *> given;

  /// Returns the options of a module. The dialect has verified the attribute.
  static CompileOptions of(mlir::ModuleOp module);
  /// The attribute of a module that holds its options.
  static constexpr llvm::StringLiteral kAttribute = "fsdp.options";
  /// Returns the options with which the members of one of `groups` are updated.
  /// Returns the group's options. A value that it does not give is that of
  /// these options if its optimizer is the same, else the optimizer's default.
  CompileOptions ofGroup(const ParameterGroup &group) const;

  /// Returns true if the program calls CUDA's libraries, or their emulation.
  bool isCuda() const { return target != Target::Host; }
  /// Returns true if values need not have the host's bits (--math), so that
  /// libraries may compute what kernels would.
  bool isFast() const {
    bool isBf16 = paramType == ElementType::bf16;
    return isCuda() && (math == Math::Fast || (math == Math::Auto && isBf16));
  }
  /// Returns true if kernels use the GPU's approximate instructions. The
  /// emulation has none.
  bool approximates() const { return target == Target::Cuda && isFast(); }
  /// Returns true if a step may have several microbatches per rank, so that
  /// gradients need memory in which they are added up.
  bool accumulates() const { return maxAccumulate != 1; }
  /// These return what was given, or else the optimizer's default.
  double lr() const;
  double eps() const;
  double weightDecay() const;
  double momentum() const;
  /// Returns true if the momentum is Nesterov's: as given, or as the optimizer
  /// has it by default.
  bool usesNesterov() const;
  double alpha() const;
  NumberPair betas() const;
  /// Returns true if gradients, or what they are computed from, are f16.
  bool usesF16() const {
    return paramType == ElementType::f16 || reduceType == ReduceType::F16;
  }
  /// Returns the blocks in which gradients travel, or None.
  BlockType reducedAs() const {
    switch (reduceType) {
    case ReduceType::I8:
      return BlockType::I8;
    case ReduceType::F8E4M3:
      return BlockType::F8E4M3;
    case ReduceType::I4:
      return BlockType::I4;
    case ReduceType::F32:
    case ReduceType::BF16:
    case ReduceType::F16:
      break;
    }
    return BlockType::None;
  }
  bool reducesBlocks() const { return reducedAs() != BlockType::None; }
  /// Returns the bytes of so many elements of a gradient on the wire.
  int64_t reducedBytes(int64_t elements) const {
    return reducesBlocks() ? blockedBytes(elements, reducedAs())
                           : elements * dtypeBytes(nameOf(reduceType));
  }
  /// Returns true if reductions send less than the gradients, and every rank
  /// can compute the whole sum.
  bool compressesGradients() const {
    return std::any_of(
        reduceHooks.begin(), reduceHooks.end(),
        [](const ReduceHook &hook) { return hook.keepsResidual(); });
  }
  /// Returns the elements of which shards are multiples: 128 bytes in the type
  /// of --param-dtype, or blocks if any travel between ranks. Then members
  /// begin with a block, too.
  int64_t shardAlignment() const {
    return sendsBlocks() ? blockElements : 128 / elementBytes(paramType);
  }
  bool sendsBlocks() const {
    return gatherType != BlockType::None || reducesBlocks();
  }
  /// Returns the most bytes that a gather writes behind its destination, where
  /// shards have padding: that of the widest layout, which is f32 with
  /// --keep-f32 and the types of the graph, and may be with blocks.
  int64_t gatherPadding() const {
    bool isF32 = sendsBlocks() || !keptF32.empty() || paramType.ofGraph;
    return maxRanks * shardAlignment() *
           elementBytes(isF32 ? ElementType::f32 : paramType);
  }
  /// Returns true if each rank's microbatch counts as a batch of its own in the
  /// running statistics, and in how many there were.
  bool countsEachRank() const {
    return buffers == BufferMode::Sequential && !syncBatchnorm;
  }
  /// Returns the scale of the loss. f16 implies a dynamic one.
  LossScale lossScale() const {
    return givenLossScale.value_or(usesF16() ? dynamicLossScale : LossScale());
  }
};

/// Returns the hook of the options that keeps a residual; null if there is
/// none.
const ReduceHook *residualHook(const CompileOptions &options);

} // namespace fsdpc::fsdp

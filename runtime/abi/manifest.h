// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The manifest: a description of a compiled program. The compiler embeds it as
// JSON and the runtime reads it at start. It holds everything that the runtime
// needs to know about the program beyond its code: inputs, the layouts of the
// parameters and where initial values come from, plans of library calls, sizes
// of memory.
//
// Plain data without behaviour. Compiler and runtime both include it, so it
// depends on neither.
#pragma once

#include "runtime/abi/compression.h"
#include "runtime/abi/loss_scale.h"
#include "runtime/support/status.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc {

/// An input of the graph, with the shape of one microbatch. Axis 0 is the
/// batch. If `bound` > 0, each value is an index into a table and must lie in
/// [lower, bound).
struct Input {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype; ///< "i64", "i32", "f32", "i1"
  int64_t bound = 0;
  int64_t lower = 0;   ///< usually 0; less if negative indices are legal
  int64_t ignored = 0; ///< a legal value outside the bound, if hasIgnored
  bool hasIgnored = false;
  /// The shape in each of Manifest::buckets; `shape` is the one with the most
  /// elements. Empty in a program of one shape.
  std::vector<std::vector<int64_t>> bucketShapes = {};
};

/// A further output of the graph that the program can report (--keep-output),
/// with the shape of one microbatch. A scalar, which is f32, is a metric.
struct Output {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype; ///< "f32", "i64", "i32", "i1" (a byte per element)

  bool isScalar() const { return shape.empty(); }
};

/// The source of the initial value of a parameter or buffer.
struct Source {
  std::string kind; ///< "file", "embedded", "rule", "none"
  std::string
      file; ///< file: path of the model's data file when it was compiled
  uint64_t offset = 0; ///< file, embedded: in bytes
  uint64_t length = 0; ///< bytes in the file
  std::string hash;    ///< XXH64 of the bytes with seed 0, 16 hex digits
  std::string dtype;   ///< in the file: "f32", "bf16", "f16", "f64", "i64", …
  std::string rule; ///< rule: as in runtime/abi/init_rule.h, "normal(0,0.02)"
};

/// A parameter as a member of a layout. `offset` and `elements` are in elements
/// of the layout's flat buffer, which are bytes if the layout is one of bytes.
/// `rate` and `decay` are not compiled into
/// kernels, so they may be edited in a dump.
struct Member {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<int64_t> shape;
  /// In a layout of bytes: "i8", "u8", "i32", "f32", … Empty in others.
  std::string dtype = {};
  int64_t offset = 0;
  int64_t elements = 0;
  double rate = 1;  ///< multiplies the learning rate
  double decay = 0; ///< weight decay
  /// Its place among the model's parameters, from 0. Files list tensors in this
  /// order, whatever the layouts are.
  int64_t position = 0;
  Source source;
};

/// Most weighted means that a loss may be made of (LossWeight).
constexpr int32_t mostLossWeights = 8;

/// An op of a LossWeight's program, which computes in f64. `op` is one of
/// runtime/abi/weight_ops.h.
struct WeightStep {
  std::string op;
  std::vector<int32_t> operands; ///< the numbers of earlier steps
  std::vector<int64_t> shape;    ///< of the result
  /// What else the op has: the axes of a reduction or permutation, the offsets
  /// and then the strides of a slice or pad, an axis.
  std::vector<int64_t> numbers;
  /// The name of the input, the kind of a reduction, the predicate of a
  /// comparison, the type to which a cast or a quotient rounds: "i" for
  /// integers, "b" for truth values, empty for floats.
  std::string kind;
  std::vector<double> values; ///< constant: its elements, or one for all
};

/// A program over the samples of one microbatch. The last step is the result.
struct WeightProgram {
  std::vector<WeightStep> steps;
};

/// The weight of a mean over targets (fsdp.loss_weight): the number of targets
/// of a microbatch, or the sum of their weights.
struct LossWeight {
  std::string name;
  double atLeast = 0;                  ///< the divisor is no less than this,
  double plus = 0;                     ///< plus this
  bool perMicrobatch = false;          ///< a step has V times both numbers
  std::vector<WeightProgram> programs; ///< one per bucket
};

constexpr int32_t mostStates = 8; ///< optimizer states per layout

/// A flat layout: the parameters of a unit at aligned offsets of one flat
/// buffer. Each of N ranks owns one of N equal shards of roundUp(ceil(elements
/// / N), shardAlignment) elements. A layout `inGroups` is cut over each group
/// of G ranks instead: a rank owns N / G such shards, and so does its
/// counterpart in every other group. "whole" buffers are replicated: every rank
/// holds all shards. A `secondary` layout is cut over all ranks, and a second
/// time over each group, in the compute type, for gathers within the group. An
/// `owned` layout is not cut: one rank has its gradient and state
/// (runtime/abi/owners.h).
struct Layout {
  std::string name;
  std::string unit;
  bool trainable = true;
  bool inGroups = false;  ///< cut over each group of ranks
  bool secondary = false; ///< has a shard over a group of ranks besides
  bool owned = false;     ///< one rank has all of it
  int64_t elements = 0;
  bool noMaster = false;      ///< parameters are kept in the compute type alone
  bool masterWhole = false;   ///< f32 masters; false: this rank's shard only
  bool gradientWhole = false; ///< f32 accumulator
  /// The gradient is that of a step's only microbatch on the only rank. It is
  /// not f32, but in the compute type, and the backward writes it there.
  bool unsummed = false;
  bool stateWhole = false;
  bool computeWhole = false; ///< the compute copy persists: zero1, zero2, ddp
  bool keptF32 = false; ///< computes in f32, whatever the manifest's type is
  /// Holds constants of the model in types of their own (Member::dtype). It is
  /// frozen, has no master, and its elements are bytes.
  bool ofBytes = false;
  /// Gathers send blocks of "i8" or "f8e4m3" (blocks.h); empty: the compute
  /// type.
  std::string wire;
  /// How a reduction sends less than the gradient, and keeps the rest on the
  /// rank. Every rank then has the whole sum, and writes all of it where the
  /// state is whole.
  Compression compression;
  int32_t states = 0;   ///< f32 tensors per parameter: 2 for adam, …
  bool average = false; ///< the last state is the parameters' running average
  /// The parts that lie in a file and not in memory (--offload), or for a GPU
  /// in pinned memory and not in its own: the states, the f32 gradient of this
  /// rank's shard, and its parameters, which are the master, or the compute
  /// copy where there is no master.
  bool statesOffloaded = false, gradientOffloaded = false;
  bool parametersOffloaded = false;
  bool isOffloaded() const {
    return statesOffloaded || gradientOffloaded || parametersOffloaded;
  }
  std::string optimizer; ///< that updates it; empty if frozen
  /// The states without the average; empty if they have no names.
  std::vector<std::string> stateNames;
  /// What the optimizer takes of whole parameters: sums per member
  /// (member_sums.h), averages of squares along rows and columns (factors.h),
  /// and updates of matrices.
  int32_t sums = 0;
  bool factored = false, orthogonal = false;
  std::vector<Member> members;
};

/// State of the model that is not a parameter (running statistics), or of an
/// optimizer that keeps less than a number per element. Replicated on every
/// rank.
struct Buffer {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<int64_t> shape;
  std::string dtype;
  /// num_batches_tracked: grows by this, the calls of its module, times V per
  /// step, or times K, where ranks share their batches
  int64_t addEachMicrobatch = 0;
  bool countsOneRank = false;
  /// True if it belongs to the optimizer: zero at the start, and no value of
  /// the model.
  bool optimizerState = false;
  Source source;
};

/// C[b] = A[b] * B[b] for every index b of the `batch` axes; with `accumulate`
/// C[b] is added, with `bias` a row of C's type. The leading dimensions lda,
/// ldb, ldc are row strides in elements. strideA, strideB and strideC have one
/// entry per batch axis, in elements; 0 broadcasts.
struct MatmulPlan {
  std::vector<int64_t> batch, strideA, strideB, strideC;
  int64_t m = 0, n = 0, k = 0;
  bool transposeA = false, transposeB = false; ///< A is stored k×m, B n×k
  int64_t lda = 0, ldb = 0, ldc = 0;
  std::string dtypeA, dtypeB, dtypeC;
  bool accumulate = false;
  /// GPU programs only: adds a row, and a matrix of C's type and strides.
  bool bias = false, addend = false;
  /// GPU programs: what becomes of the sums, or empty. "gelu" (tanh's form),
  /// "gelu_extra", which also writes GELU's input, "gelu_grad", and "sum_lhs"
  /// and "sum_rhs", which also sum A or B over k.
  std::string epilogue;
  std::string library; ///< GPU programs: "cublaslt"
};

/// Convolution or one of its gradients, in dense NCHW and OIHW. Operands by
/// kind:
///
///   "forward"  y = conv(x, w)
///   "input"    x is dy, y is dx
///   "weight"   x is the input, w is dy, y is dw
struct ConvolutionPlan {
  std::string kind, dtype;
  int64_t batch = 0, channels = 0, height = 0, width = 0;
  int64_t filters = 0, kernelHeight = 0, kernelWidth = 0, groups = 1;
  int64_t outHeight = 0, outWidth = 0;
  std::vector<int64_t> strides, padsBegin, padsEnd, dilations;
  std::string library; ///< GPU programs: "cudnn"
};

/// Pooling or its gradient, in dense NCHW; kind is "max", "average", "max_grad"
/// or "average_grad". Only max and max_grad use the workspace: one int32 per
/// output element, the index of the maximum within its window.
struct PoolingPlan {
  std::string kind, dtype;
  int64_t batch = 0, channels = 0, height = 0, width = 0;
  int64_t outHeight = 0, outWidth = 0;
  std::vector<int64_t> kernel, strides, padsBegin, padsEnd;
  bool countPadding = false; ///< average: padding counts in the divisor
  std::string library;       ///< GPU programs: "own", the runtime's kernels
};

/// Attention of `heads` query heads over `groups` key heads (heads is a
/// multiple of groups), forward or backward. Strides are in elements. Those of
/// the operands are of batch, head and row; elements within a row are dense.
/// Those of the mask are of batch, head, query and key; 0 broadcasts. Only the
/// backward plan has the strides of cotangents.
struct AttentionPlan {
  bool backward = false;
  int64_t batch = 0, heads = 0, groups = 0, queries = 0, keys = 0;
  int64_t width = 0, valueWidth = 0; ///< elements of a query or key, of a value
  double scale = 1;
  bool causal = false; ///< query t sees keys 0 … t + keys - queries
  std::string dtype;
  std::string
      dtypeMask; ///< "i1": true keeps; float types: added; empty: no mask
  std::vector<int64_t> strideQuery, strideKey, strideValue, strideOutput;
  std::vector<int64_t> strideMask;
  std::vector<int64_t> strideGrad, strideDQuery, strideDKey, strideDValue;
  /// GPU programs: "cudnn", or "products" (matrix products with a row softmax
  /// between them).
  std::string library;
};

/// A command of a stream as a trace shows it. Commands that differ only in
/// their operands share one entry. Call refers to it by index.
struct CommandInfo {
  std::string op; ///< op of the rt dialect: "launch", "matmul", "all_gather", …
  std::string name; ///< the kernel, the shape of the product, or the layouts
  int64_t bytes = 0, flops = 0; ///< 0 if they depend on the number of ranks
  int64_t exps = 0;  ///< part of flops: exp, tanh, erf and similar functions
  int32_t plan = -1; ///< library calls: index in the table of their kind
  std::vector<int32_t> layouts; ///< collectives and the update
};

/// One enqueued command; a stream's calls are listed in the order in which they
/// are enqueued.
struct Call {
  int32_t command = 0; ///< index into `commands`
  std::string unit;
  bool backward = false;
  std::string
      node; ///< name of the ONNX node; the first one if kernels were fused
};

/// Everything that one entry function enqueues on one stream, except event
/// waits.
struct CallSequence {
  /// "update", or "microbatch" or "evaluate" with the suffix of its bucket
  /// (suffixOfBucket).
  std::string entry;
  int32_t stream = 0;
  std::vector<Call> calls;
};

/// The step that the cost model expects on so many ranks, at planThreads.
struct PredictedStep {
  int64_t ranks = 1;
  double microbatchUs = 0, updateUs = 0;
};

/// The whole program.
struct Manifest {
  int32_t version = 1;
  std::string compiler;     ///< version of fsdpc
  std::string commandLine;  ///< of the compile
  std::string scheduleHash; ///< of the order in which each communicator's
                            ///< collectives start; ranks must agree
  std::string programHash;  ///< of the final rt module without locations; ranks
                            ///< must agree
  std::string strategy, optimizer;
  std::string target;                ///< "host", "cuda", "cuda-emulation"
  std::vector<std::string> gpuArchs; ///< GPU programs: "sm_90", …
  std::string cpu;                   ///< "x86-64-v3", …; "native" is resolved
  std::vector<std::string>
      cpuFeatures; ///< LLVM names; the processor must have them all
  /// See computeDtypeOf. Gradients may travel in blocks: "i8" or "f8e4m3".
  std::string computeDtype, reduceDtype;
  double lr = 0;
  double maxNorm = 0; ///< of clipping; 0: none
  LossScale lossScale;
  /// The effects of hooks on the reduction: they divide gradients by a number,
  /// and by the number of microbatches of a step, and count gradients that are
  /// not finite. The update takes the factors back.
  double predivided = 1;
  bool averagedBefore = false, countsZeroed = false;
  int64_t maxRanks = 1024, planRanks = 8, planThreads = 1;
  int64_t planRanksPerNode = 0; ///< 0: all on one node
  int64_t reshardTo = 0;     ///< ranks of a group by --reshard-to; 0: not given
  int64_t maxAccumulate = 0; ///< microbatches of a rank per step; 0: any number
  int64_t shardAlignment = 32; ///< elements
  int64_t memoryLimit = 0;     ///< bytes per rank; 0: none
  int64_t arenaBytes = 0;      ///< as packed, with slack for maxRanks
  int64_t arenaGathered = 0, arenaGradients = 0,
          arenaActivations = 0; ///< shares of the arena's peak, for the table;
                                ///< the rest of the arena is slack
  /// The file that holds activations between forward and backward; 0: none.
  int64_t activationFileBytes = 0;
  int64_t constantBytes = 0; ///< constant tensors in the program
  int32_t events = 0;
  int64_t stackBytes = 0;  ///< deepest stack of a kernel, bytes per thread
  std::string tokensInput; ///< input whose elements count as tokens, or empty
  /// The program's evaluation reports its loss as a mean, with its divisor.
  /// Targets of an ignored value count for neither.
  bool evaluatesMeans = false;
  /// "step" or "microbatch" (--loss-mean); empty if the loss is no mean over
  /// targets.
  std::string lossMean;
  std::vector<LossWeight> lossWeights; ///< none with "microbatch"
  std::vector<PredictedStep> predictions;
  /// The shapes that the program was compiled for, as --dim names them:
  /// "T=128". Empty if there is one.
  std::vector<std::string> buckets;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Layout> layouts;
  std::vector<Buffer> buffers;
  std::vector<MatmulPlan> matmuls;
  std::vector<ConvolutionPlan> convolutions;
  std::vector<PoolingPlan> poolings;
  std::vector<AttentionPlan> attentions;
  std::vector<CommandInfo> commands;
  std::vector<CallSequence> sequences;

  /// The type in which a layout is gathered and its gradients are packed.
  std::string computeDtypeOf(const Layout &layout) const {
    return layout.ofBytes ? "u8" : layout.keptF32 ? "f32" : computeDtype;
  }
};

/// Returns the samples of a microbatch: the first axis of the inputs, or 1 if
/// they differ in it. Rows of nodes and of edges, for example, belong together
/// only as a whole, so a microbatch of graphs is one sample.
int64_t samplesPerMicrobatch(const Manifest &manifest);

/// Returns the number of shapes that the program was compiled for.
size_t bucketCount(const Manifest &manifest);
/// Returns the shape of an input in a bucket.
const std::vector<int64_t> &shapeIn(const Input &input, size_t bucket);
/// Returns the end of the names of a bucket's entry functions: "" for the first
/// one, "_1" for the second.
std::string suffixOfBucket(size_t bucket);
/// Checks that every input has a shape per bucket, that microbatches of all
/// buckets have equally many samples, and that the shape of a sample tells the
/// buckets apart. An error names the buckets at fault.
Status checkBuckets(const Manifest &manifest);

std::string toJson(const Manifest &manifest);
/// Parses a manifest. The error of malformed text names the place by its path.
/// Every key must be present and no other may be; members must lie within their
/// layout in ascending order.
Result<Manifest> fromJson(const char *text, size_t bytes);

} // namespace fsdpc

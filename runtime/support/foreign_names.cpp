// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tables of foreign names (foreign_names.h). A name stands in them if it is
// what the documentation of another tool says; what is merely misspelt is left
// to the search for the nearest name.
#include "runtime/support/foreign_names.h"
#include "runtime/support/own_flags.h"

#include <algorithm>
#include <utility>

namespace fsdpc {
namespace {

// Advice that several names share.
constexpr const char *strategy =
    "write '--strategy=zero3' (or 'zero2', 'zero1', 'ddp', 'hybrid') of fsdpc";
constexpr const char *group =
    "write '--shard-group G' of the program, compiled with a hybrid strategy";
constexpr const char *secondary = "write '--reshard-to=G' of fsdpc, or "
                                  "'--shard-group G' of a program that was "
                                  "compiled with it";
constexpr const char *dtype = "write '--param-dtype=bf16' of fsdpc";
constexpr const char *clip = "write '--clip-grad-norm=X' of fsdpc";
constexpr const char *microbatch =
    "a microbatch is the first axis of the model's inputs: export the model "
    "with it, and sum over several with '--accumulate K' of the program";
constexpr const char *wholeBatch =
    "a step takes ranks x K microbatches: set K by '--accumulate K' of the "
    "program";
constexpr const char *accumulate = "write '--accumulate K' of the program";
constexpr const char *rate = "write '--lr X' of the program";
constexpr const char *steps = "write '--steps S' of the program";
constexpr const char *epochs =
    "write '--steps S' of the program: an epoch is the number of samples over "
    "those of a step, and the data begins again at its end";
constexpr const char *schedule =
    "write '--lr-schedule=cosine,warmup=W' of the program";
constexpr const char *recompute = "write '--recompute=units' of fsdpc";
constexpr const char *prefetch = "write '--prefetch=auto' of fsdpc";
constexpr const char *units = "write '--unit-class=GLOB' of fsdpc";
constexpr const char *unitSize = "write '--unit-size=N' of fsdpc";
constexpr const char *optimizer = "write '--optimizer=NAME' of fsdpc";
constexpr const char *betas = "write '--betas=B1,B2' of fsdpc";
constexpr const char *groups =
    "write '--group=REGEX: lr=X optimizer=NAME' of fsdpc, in quotes";
constexpr const char *ema =
    "write '--ema=DECAY' of fsdpc, whose programs take '--save-ema FILE'";
constexpr const char *offload = "write '--offload=optimizer' of fsdpc";
constexpr const char *offloadAll =
    "write '--offload=optimizer,parameters,gradients' of fsdpc";
constexpr const char *offloadShards =
    "write '--offload=parameters,gradients' of fsdpc";
constexpr const char *ignored = "write '--ignored=REGEX' of fsdpc";
constexpr const char *layoutSize = "write '--layout-size=N' of fsdpc";
constexpr const char *buffers = "write '--buffers=broadcast' of fsdpc";
constexpr const char *lossScale =
    "write '--loss-scale=dynamic,init=X,growth=X,backoff=X,interval=N' of "
    "fsdpc";
constexpr const char *castInputs = "write '--cast-inputs' of fsdpc";
constexpr const char *halfFloats = "write '--param-dtype=f16' of fsdpc";
constexpr const char *gatherBlocks = "write '--gather-dtype=i8' of fsdpc";
constexpr const char *hook = "write '--reduce-hook=HOOK' of fsdpc";
constexpr const char *frozen = "write '--frozen=REGEX' of fsdpc";
constexpr const char *launcher =
    "ranks are started by mpirun, torchrun or srun, or as threads by '--ranks "
    "N' of the program";
constexpr const char *load = "write '--init FILE.safetensors' of the program";
constexpr const char *save = "write '--save FILE.safetensors' of the program";
constexpr const char *data = "write '--data NAME=FILE.npy' of the program";
constexpr const char *compiled =
    "leave it out: fsdpc decides this when it compiles";
constexpr const char *agreed =
    "leave it out: all ranks start from the same values, and check it";

} // namespace

const std::vector<ForeignFlag> &foreignFlags() {
  static const std::vector<ForeignFlag> table = {
      // Sharding.
      {"sharding-strategy", strategy},
      {"fsdp", strategy},
      {"zero-stage", strategy},
      {"stage", strategy},
      {"zero-optimization", strategy},
      {"reshard-after-forward", strategy},
      {"mesh", group},
      {"hybrid-shard-group-size", group},
      {"mics-shard-size", group},
      {"zero-hpz-partition-size", secondary},
      {"auto-wrap-policy", units},
      {"fsdp-transformer-layer-cls-to-wrap", units},
      {"transformer-layer-cls-to-wrap", units},
      {"min-num-params", unitSize},
      {"fsdp-min-num-params", unitSize},
      {"reduce-bucket-size", layoutSize},
      {"allgather-bucket-size", layoutSize},
      {"bucket-cap-mb", layoutSize},
      {"reduce-buffer-size", "write '--bucket-size=N' of fsdpc"},
      {"stage3-module-granularity-threshold", units},
      {"leaf-module", units},
      {"stage3-param-persistence-threshold", "write '--persist=N' of fsdpc"},
      {"shard-placement-fn", "write '--layout=parameter' of fsdpc"},
      {"sharded-optimizer", "write '--strategy=oss' of fsdpc"},
      {"ignored-modules", ignored},
      {"ignored-states", ignored},
      {"ignored-params", ignored},
      {"no-sync", "write '--reduce=step' of fsdpc"},
      {"backward-prefetch", prefetch},
      {"forward-prefetch", prefetch},
      {"stage3-prefetch-bucket-size", prefetch},
      {"overlap-comm", prefetch},
      {"broadcast-buffers", buffers},
      {"forward-sync-buffers", buffers},
      {"comm-hook", hook},
      {"register-comm-hook", hook},
      {"gradient-predivide-factor",
       "write '--reduce-hook=predivide=X' of fsdpc"},
      {"convert-sync-batchnorm", "write '--sync-batchnorm' of fsdpc"},
      {"stage3-max-live-parameters", "write '--limit-all-gathers=K' of fsdpc"},
      {"offload-optimizer", offload},
      {"offload-params", offloadAll},
      {"offload-param", offloadAll},
      {"cpu-offload", offloadAll},
      {"cpu-offload-param", offloadAll},
      {"offload-policy", offloadAll},
      {"move-params-to-cpu", offloadShards},
      {"move-grads-to-cpu", offloadShards},
      {"cpu-checkpointing", "write '--offload=activations' of fsdpc"},
      {"nvme-path", "write '--offload-dir DIR' of the program"},
      // Precision.
      {"mixed-precision", dtype},
      {"compute-dtype", dtype},
      {"precision", dtype},
      {"dtype", dtype},
      {"amp", dtype},
      {"bf16", dtype},
      {"mp-policy", dtype},
      {"cast-forward-inputs", castInputs},
      {"cast-root-forward-inputs", castInputs},
      {"fp16", halfFloats},
      {"broadcast-fp16", halfFloats},
      {"module-classes-to-ignore", "write '--keep-f32=GLOB' of fsdpc"},
      {"init-scale", lossScale},
      {"initial-scale-power", lossScale},
      {"growth-factor", lossScale},
      {"backoff-factor", lossScale},
      {"growth-interval", lossScale},
      {"loss-scale-window", lossScale},
      {"reduce-fp16", "write '--reduce-dtype=f16' of fsdpc"},
      {"zero-quantized-weights", gatherBlocks},
      {"zero-quantized-nontrainable-weights", gatherBlocks},
      {"zero-quantized-gradients", "write '--reduce-dtype=i4' of fsdpc"},
      {"fp32-reduce-scatter", "write '--reduce-dtype=f32' of fsdpc"},
      {"communication-data-type", "write '--reduce-dtype=bf16' of fsdpc"},
      // Optimization.
      {"grad-clip", clip},
      {"clip-grad", clip},
      {"gradient-clipping", clip},
      {"gradient-clip-val", clip},
      {"max-grad-norm", clip},
      {"learning-rate", rate},
      {"optim", optimizer},
      {"optimizer-type", optimizer},
      {"adam-beta1", betas},
      {"adam-beta2", betas},
      {"beta1", betas},
      {"beta2", betas},
      {"epsilon", "write '--eps=X' of fsdpc"},
      {"adam-epsilon", "write '--eps=X' of fsdpc"},
      {"trust-coefficient", "write '--trust=X' of fsdpc"},
      {"trust-coeff", "write '--trust=X' of fsdpc"},
      {"wd", "write '--weight-decay=X' of fsdpc"},
      {"param-groups", groups},
      {"parameter-groups", groups},
      {"optimizer-grouped-parameters", groups},
      {"lr-mult", groups},
      {"use-ema", ema},
      {"ema-decay", ema},
      {"ema-max-decay", ema},
      {"model-ema", ema},
      {"model-ema-decay", ema},
      {"averaged-model", ema},
      {"scheduler", schedule},
      {"lr-scheduler", schedule},
      {"lr-scheduler-type", schedule},
      {"lr-decay-style", schedule},
      {"warmup", schedule},
      {"warmup-steps", schedule},
      {"warmup-iters", schedule},
      {"num-warmup-steps", schedule},
      {"freeze", frozen},
      {"requires-grad", frozen},
      {"auto-refresh-trainable", frozen},
      {"warn-on-trainable-params-changed", frozen},
      // Batches and the length of a run.
      {"batch-size", microbatch},
      {"micro-batch-size", microbatch},
      {"per-device-train-batch-size", microbatch},
      {"train-micro-batch-size-per-gpu", microbatch},
      {"global-batch-size", wholeBatch},
      {"train-batch-size", wholeBatch},
      {"gradient-accumulation-steps", accumulate},
      {"accumulate-grad-batches", accumulate},
      {"grad-accum", accumulate},
      {"epochs", epochs},
      {"num-epochs", epochs},
      {"max-epochs", epochs},
      {"num-train-epochs", epochs},
      {"max-steps", steps},
      {"num-steps", steps},
      {"train-iters", steps},
      {"max-iters", steps},
      // Memory.
      {"activation-checkpointing", recompute},
      {"checkpoint-activations", recompute},
      {"gradient-checkpointing", recompute},
      {"recompute-activations", recompute},
      // Files and processes.
      {"train-data", data},
      {"data-path", data},
      {"dataset", data},
      {"resume", load},
      {"resume-from-checkpoint", load},
      {"load-checkpoint", load},
      {"model-name-or-path", load},
      {"param-init-fn", "write '--init-rule=GLOB=RULE' of fsdpc"},
      {"elastic-checkpoint", "write '--resume' of the program, with "
                             "'--checkpoint DIR'"},
      {"state-dict-on-rank-0-only", save},
      {"stage3-gather-16bit-weights-on-model-save", save},
      {"stage3-gather-fp16-weights-on-model-save", save},
      {"verbose", "write '--info' of the program"},
      {"output-dir", save},
      {"save-dir", save},
      {"logging-dir", "write '--log FILE.jsonl' of the program"},
      {"profile", "write '--trace FILE.json' of the program"},
      {"num-threads", "write '--threads T' of the program"},
      {"nproc-per-node", launcher},
      {"nnodes", launcher},
      {"world-size", launcher},
      {"local-rank", launcher},
      {"rank", launcher},
      {"process-group", launcher},
      {"timeout", "write '--watchdog S' of the program, and '--join-timeout S' "
                  "for its start"},
      {"device-id", "write '--target=cuda' of fsdpc: a rank takes the GPU of "
                    "its place on its node"},
      {"compute-device", "write '--target=cuda' of fsdpc, or leave it out"},
      {"backend", launcher},
      // Flags of other tools that need none here.
      {"sync-module-states", agreed},
      {"use-orig-params", compiled},
      {"flatten-parameters", compiled},
      {"find-unused-parameters", compiled},
      {"static-graph", compiled},
      {"gradient-as-bucket-view", compiled},
      {"contiguous-gradients", compiled},
      {"fused", compiled},
      {"foreach", compiled},
      {"compile", compiled}};
  return table;
}

// Returns a name in small letters, with `separator` for dashes and underscores.
static std::string plain(std::string_view name, char separator) {
  std::string text(name);
  for (char &c : text) {
    if (c == '-' || c == '_')
      c = separator;
    else if (c >= 'A' && c <= 'Z')
      c = char(c - 'A' + 'a');
  }
  return text;
}

std::string adviceOnFlag(std::string_view flag) {
  // Private arguments begin with an underscore.
  size_t begin = std::min(flag.find_first_not_of("-_"), flag.size());
  std::string given(flag.substr(begin, flag.find('=') - begin));
  std::string name = plain(given, '-');
  for (const ForeignFlag &each : foreignFlags())
    if (each.name == name)
      return each.advice;
  auto isAmong = [&](std::span<const std::string_view> flags) {
    return std::ranges::find(flags, name) != flags.end();
  };
  bool ofProgram = isAmong(programFlags()),
       ofCompiler = isAmong(compilerFlags());
  if (!ofProgram && !ofCompiler)
    return "";
  // As torch writes it, with underscores.
  if (given != name)
    return "write '--" + name + "'" +
           (ofProgram && ofCompiler ? ""
            : ofProgram             ? " of the program"
                                    : " of fsdpc");
  // A command asks about flags that it does not have itself.
  return ofProgram ? "it is a flag of the compiled program"
                   : "it is a flag of fsdpc, at compile time";
}

std::string nativeValue(std::string_view value) {
  static const std::pair<const char *, const char *> table[] = {
      // torch's ShardingStrategy, and DeepSpeed's stages.
      {"full_shard", "zero3"},
      {"shard_grad_op", "zero2"},
      {"no_shard", "ddp"},
      {"hybrid_shard", "hybrid"},
      {"hybrid_shard_zero2", "hybrid_zero2"},
      {"fsdp", "zero3"},
      {"stage1", "zero1"},
      {"stage2", "zero2"},
      {"stage3", "zero3"},
      {"0", "ddp"},
      {"1", "zero1"},
      {"2", "zero2"},
      {"3", "zero3"},
      // Element types.
      {"float32", "f32"},
      {"float", "f32"},
      {"fp32", "f32"},
      {"32", "f32"},
      {"bfloat16", "bf16"},
      {"bf16_mixed", "bf16"},
      {"float16", "f16"},
      {"half", "f16"},
      {"fp16", "f16"},
      {"16", "f16"},
      // torch's BackwardPrefetch.
      {"backward_pre", "pre"},
      {"backward_post", "post"},
      // torch.optim.lr_scheduler, and the names of Transformers.
      {"constantlr", "constant"},
      {"constant_with_warmup", "constant"},
      {"linearlr", "linear"},
      {"cosineannealinglr", "cosine"},
      {"cosine_with_min_lr", "cosine"},
      {"steplr", "step"},
      {"multisteplr", "step"},
      {"exponentiallr", "exponential"},
      {"polynomiallr", "polynomial"},
      {"onecyclelr", "onecycle"},
      {"one_cycle", "onecycle"},
      {"warmup_stable_decay", "wsd"},
      // Devices.
      {"gpu", "cuda"},
      {"cpu", "host"}};
  std::string name = plain(value.substr(value.rfind('.') + 1), '_');
  name.erase(0, name.find_first_not_of('_'));
  for (auto &[foreign, native] : table)
    if (foreign == name)
      return native;
  return name;
}

} // namespace fsdpc

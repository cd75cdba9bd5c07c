// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rows of the table of flags, and the checks of single values. A check says
// what would have been right, and CLI11 puts the flag's name in front.
// Conditions between two flags are in command_line.cpp.
#include "runtime/cli/flag_table.h"
#include "runtime/cli/flag_values.h"

namespace fsdpc::runtime {
namespace {

// The bounds of integers are template arguments, so that each row of the table
// can name a plain function.
template <int64_t least, int64_t most>
Status wholeNumber(const std::string &text) {
  return checkInteger(text, least, most);
}

// An empty path, as from a shell variable that is not set, would count as none.
Status path(const std::string &text) {
  if (!text.empty())
    return {};
  return Error{"'' is not a path"};
}

// "FROM=TO"; which of several '=' is meant would be a guess.
Status prefixes(const std::string &text) {
  size_t equals = text.find('=');
  if (equals != std::string::npos && text.size() > 1 &&
      text.find('=', equals + 1) == std::string::npos)
    return {};
  return Error{"'" + text +
               "' is not of the form FROM=TO, such as '=model.' for names that "
               "lack 'model.'"};
}

// "100" or "15m".
Status interval(const std::string &text) {
  bool minutes = !text.empty() && text.back() == 'm';
  if (!minutes)
    return checkInteger(text, 1, int64_t(1) << 40);
  return checkInteger(text.substr(0, text.size() - 1), 1, 1 << 20);
}

// Checked here, computed when the options are complete.
Status duration(const std::string &text) {
  double seconds;
  if (parseDuration(text, seconds) && seconds > 0)
    return {};
  return Error{"'" + text +
               "' is not a time such as 90s, 30m, 12h or 11:30:00"};
}

// The weights of --mix; how many there must be depends on --data.
Status weights(const std::string &text) {
  FSDPC_TRY(parseWeights(text));
  return {};
}

// "newest", which stands for no value, or a step.
Status stepOrNewest(const std::string &text) {
  return text == "newest" ? Status() : checkInteger(text, 0, int64_t(1) << 40);
}

Status nonFinite(const std::string &text) {
  FSDPC_TRY(parseNonFinite(text));
  return {};
}

// Parses only to check. The result is needed after all flags are known.
Status schedule(const std::string &text) {
  FSDPC_TRY(parseSchedule(text));
  return {};
}

const Flag flags[] = {
    {"--data", "NAME=FILE",
     "An input's samples, on the first axis of a .npy file or of a tensor, "
     "FILE.npz[:ARRAY] or FILE.safetensors[:TENSOR]; integers widen. "
     "FILE may be a list with commas, and have patterns such as 'part-*.npy'",
     [](Arguments &a) -> Target { return &a.data; }},
    {"--tokens", "NAME=FILE[:WIDTH][+SHIFT]",
     "An input as windows of a token stream: a .npy file, one with a header of "
     "llm.c or an index of Megatron, or raw tokens of the named width (u8, "
     "u16, u32, i8, i16, i32, i64); window i begins at i*T + "
     "SHIFT, T the input's last axis. FILE may be several, as "
     "with --data; no window crosses from one to the next",
     [](Arguments &a) -> Target { return &a.tokens; }},
    {"--steps", "S",
     "Optimizer steps, counted from the start of training, also with --resume; "
     "0 only evaluates, and needs --eval instead of --data",
     [](Arguments &a) -> Target { return &a.steps; },
     wholeNumber<0, int64_t(1) << 40>},
    {"--accumulate", "K", "Microbatches a rank runs in one step (default 1)",
     [](Arguments &a) -> Target { return &a.options.accumulate; },
     wholeNumber<1, 1 << 20>},
    {"--threads", "T",
     "Compute threads per rank (default: its share of the cores)",
     [](Arguments &a) -> Target { return &a.options.threads; },
     wholeNumber<1, 4096>},
    {"--lr", "X", "Learning rate (default: the compiled one)",
     [](Arguments &a) -> Target { return &a.options.lr; }, checkAtLeastZero},
    {"--lr-schedule", "NAME[,...]",
     "constant, linear or cosine[,warmup=W][,min=X]: W steps rise to the "
     "learning rate, then it stays, or falls to X at the end of --steps "
     "(default constant); polynomial[,power=1], wsd[,decay=D] (stays, and "
     "falls over the last D steps), step,size=S[,gamma=0.1] and "
     "exponential,gamma=G take a warmup as well; "
     "onecycle[,start=0.3][,div=25][,final=1e4][,anneal=cos] as in PyTorch; "
     "file:FILE has lines of a step and its rate",
     [](Arguments &a) -> Target { return &a.options.scheduleText; }, schedule},
    {"--seed", "X", "Seed of dropout, --shuffle and init rules (default 0)",
     [](Arguments &a) -> Target { return &a.options.seed; }, checkSeed},
    {"--shuffle", nullptr,
     "Take the samples of each epoch in a seeded order, the same for every N",
     [](Arguments &a) -> Target { return &a.options.shuffle; }},
    {"--eval", "NAME=FILE",
     "An input's samples for evaluations, as --data; one for each input. An "
     "evaluation computes the loss without dropout and with running "
     "statistics, and logs it as eval_loss: at the end, or as --eval-every "
     "says",
     [](Arguments &a) -> Target { return &a.eval; }},
    {"--eval-tokens", "NAME=FILE[:WIDTH][+SHIFT]",
     "The same from a token stream, as --tokens",
     [](Arguments &a) -> Target { return &a.evalTokens; }},
    {"--eval-every", "N", "Evaluate after every N steps, and at the end",
     [](Arguments &a) -> Target { return &a.options.evalEvery; },
     wholeNumber<1, int64_t(1) << 40>},
    {"--eval-steps", "M",
     "Evaluate on the first M microbatches (default: all samples)",
     [](Arguments &a) -> Target { return &a.options.evalSteps; },
     wholeNumber<1, int64_t(1) << 40>},
    {"--metric", "OUTPUT[=NAME][:mean|sum]",
     "Log a scalar output of the model under this name, in training and in "
     "evaluations: its mean (default) or sum over the microbatches. The "
     "program has the outputs of fsdpc's --keep-output (see --info); an "
     "evaluation leaves out a microbatch that is not full",
     [](Arguments &a) -> Target { return &a.metrics; }},
    {"--predict", "OUTPUT=FILE.npy",
     "Write another output for all samples of an evaluation, in their order; "
     "with --eval-every the last evaluation's stays",
     [](Arguments &a) -> Target { return &a.predictions; }},
    {"--best", "DIR",
     "Keep the parameters of the lowest eval_loss in this folder, as --save "
     "writes them; best.json names the file, its step and its loss",
     [](Arguments &a) -> Target { return &a.options.best; }, path},
    {"--patience", "N",
     "End the training after N evaluations in a row without a lower eval_loss",
     [](Arguments &a) -> Target { return &a.options.patience; },
     wholeNumber<1, 1 << 20>},
    {"--mix", "W,W[,...]",
     "Mix the entries of each list of --data or --tokens by these weights, "
     "one per entry (a file or a pattern); each entry has epochs of its own",
     [](Arguments &a) -> Target { return &a.options.mixText; }, weights},
    {"--split-at", "TOKEN",
     "Cut --tokens into windows of one document each, TOKEN being the last of "
     "every document; what is left of a document, with the largest SHIFT, "
     "fills no window and is left out",
     [](Arguments &a) -> Target { return &a.options.splitAt; },
     wholeNumber<0, INT64_MAX>},
    {"--skip-corrupt", nullptr,
     "Take the next sample instead of one that cannot be read or has a value "
     "out of its range, and count such samples in the log; evaluations still "
     "refuse them",
     [](Arguments &a) -> Target { return &a.options.skipCorrupt; }},
    {"--weights", "DIR",
     "Where the model's own files lie, if they moved; those that are not there "
     "are taken from where they were",
     [](Arguments &a) -> Target { return &a.options.weights; }, path},
    {"--init", "FILE",
     "Start from these parameters instead, by name or alias: a safetensors "
     "file, a folder of them with an index, or a .npz file of numpy.savez",
     [](Arguments &a) -> Target { return &a.options.init; }, path},
    {"--rename", "FROM=TO",
     "Names of --init that begin with FROM begin with TO in the program; "
     "either may be empty (default: one prefix that all have or lack)",
     [](Arguments &a) -> Target { return &a.options.rename; }, prefixes},
    {"--log", "FILE.jsonl", "Write a header and a line per step",
     [](Arguments &a) -> Target { return &a.options.log; }, path},
    {"--tensorboard", "DIR",
     "Write the curves of the log as an event file in this folder, for "
     "TensorBoard; a resumed run adds a file",
     [](Arguments &a) -> Target { return &a.options.tensorboard; }, path},
    {"--histogram-every", "M",
     "After every M steps also write a histogram per unit: of each parameter "
     "the ratio of its update's norm to its own. Programs of the host",
     [](Arguments &a) -> Target { return &a.options.histogramEvery; },
     wholeNumber<1, int64_t(1) << 40>},
    {"--trace", "FILE.json",
     "Write when each command of each stream ran in the last 8 steps, as trace "
     "events for ui.perfetto.dev or chrome://tracing; of several ranks, rank R "
     "writes FILE.R.json",
     [](Arguments &a) -> Target { return &a.options.trace; }, path},
    {"--save", "FILE.safetensors",
     "Write the parameters (f32) and buffers at the end",
     [](Arguments &a) -> Target { return &a.options.save; }, path},
    {"--save-ema", "FILE.safetensors",
     "The same with the averages of the parameters (compiled with --ema)",
     [](Arguments &a) -> Target { return &a.options.saveEma; }, path},
    {"--save-gradients", "FILE.safetensors",
     "Write the first step's mean gradients, before clipping",
     [](Arguments &a) -> Target { return &a.options.saveGradients; }, path},
    {"--offload-dir", "DIR",
     "Where a program that was compiled with --offload keeps what is "
     "offloaded, in a file without a name per rank (default: $TMPDIR, or "
     "/tmp); a fast local disk",
     [](Arguments &a) -> Target { return &a.options.offloadDir; }, path},
    {"--checkpoint", "DIR",
     "Write checkpoints to this folder, from which --resume continues: one "
     "after the last step, or when a signal ends the run",
     [](Arguments &a) -> Target { return &a.options.checkpoint; }, path},
    {"--checkpoint-every", "N|Mm",
     "Write one after every N steps, or after M minutes",
     [](Arguments &a) -> Target { return &a.options.checkpointEvery; },
     interval},
    {"--on-nonfinite", "HOW[,times=R]",
     "When a loss or gradient is not finite: stop, skip (leave the step out, "
     "as a dynamic loss scale does) or rollback (go back to the newest "
     "checkpoint of --checkpoint, and on with the samples after that step); at "
     "most R times (default 10), then stop. Programs of the host",
     [](Arguments &a) -> Target { return &a.onNonFinite; }, nonFinite},
    {"--time-limit", "TIME",
     "End the run, as SIGTERM does, before the step that would pass TIME: 90s, "
     "30m, 12h, or [D-]HH:MM:SS as Slurm writes it; leave room for --save and "
     "--checkpoint",
     [](Arguments &a) -> Target { return &a.options.timeLimit; }, duration},
    {"--keep", "K", "Remove all but the newest K checkpoints (default: none)",
     [](Arguments &a) -> Target { return &a.options.keep; },
     wholeNumber<1, 1 << 20>},
    {"--keep-every", "M",
     "With --keep: keep also the checkpoints of every M-th step",
     [](Arguments &a) -> Target { return &a.options.keepEvery; },
     wholeNumber<1, INT64_MAX>},
    {"--after-checkpoint",
     "CMD",
     "Run a command of the shell after each checkpoint, with its folder for "
     "{}; "
     "the next checkpoint waits for its end",
     [](Arguments &a) -> Target { return &a.options.afterCheckpoint; },
     {}},
    {"--resume", "[=STEP]",
     "Continue from the newest valid checkpoint of --checkpoint, or from that "
     "of STEP; start at step 0 if there is none yet",
     [](Arguments &a) -> Target {
       return OptionalText{&a.options.resume, "newest"};
     },
     stepOrNewest},
    {"--ranks", "N", "Run N ranks as threads of this process, without mpirun",
     [](Arguments &a) -> Target { return &a.options.ranks; },
     wholeNumber<1, 1 << 20>},
    {"--ranks-per-node", "R",
     "Cut the host into virtual nodes of R ranks (to test the path across "
     "nodes)",
     [](Arguments &a) -> Target { return &a.options.ranksPerNode; },
     wholeNumber<1, 1 << 20>},
    {"--shard-group", "G",
     "Ranks that share a layout under the hybrid strategies, which replicate "
     "it across such groups, or keep it with --reshard-to; divides N "
     "(default: that of --reshard-to, or the ranks of a node)",
     [](Arguments &a) -> Target { return &a.options.shardGroup; },
     wholeNumber<1, 1 << 20>},
    {"--deterministic", nullptr,
     "CUDA: the same bits in every run, strategy and schedule: sums in rank "
     "order, no atomics (the host always does so)",
     [](Arguments &a) -> Target { return &a.options.device.deterministic; }},
    {"--no-graph", nullptr,
     "CUDA: enqueue every call in every step instead of replaying captured "
     "graphs",
     [](Arguments &a) -> Target { return &a.noGraph; }},
    {"--no-symmetric-memory", nullptr,
     "CUDA: allocate the GPU's memory without NCCL, which then copies through "
     "buffers of its own, and let all collectives of NCCL take "
     "multiprocessors",
     [](Arguments &a) -> Target { return &a.noSymmetricMemory; }},
    {"--nccl-max-ctas", "N",
     "CUDA: blocks, and so multiprocessors, that a collective of NCCL may take "
     "(default: NCCL's own choice, which depends on the links)",
     [](Arguments &a) -> Target { return &a.options.device.ncclMaxCtas; },
     wholeNumber<1, 64>},
    {"--tune-products", "[=FILE]",
     "CUDA: time up to eight algorithms for each matrix product at the start, "
     "take the fastest, and keep the choices in FILE for later runs (default: "
     "PROGRAM.products)",
     [](Arguments &a) -> Target {
       return OptionalText{&a.options.device.tuneProducts,
                           productsBesideProgram};
     },
     path},
    {"--watchdog", "S",
     "End the job when a rank has been silent, or a step has not got on, for S "
     "seconds (default: the larger of 300 and 20 median steps; 0: never). On "
     "CUDA also when a collective has not ended for S (default 600)",
     [](Arguments &a) -> Target { return &a.options.watchdog; },
     checkAtLeastZero},
    {"--first-step-timeout", "S",
     "The same for the first step of a run (default 1800; 0: never)",
     [](Arguments &a) -> Target { return &a.options.firstStepTimeout; },
     checkAtLeastZero},
    {"--join-timeout", "S",
     "How long ranks under torchrun or srun wait for each other at the start "
     "(default: FSDPC_JOIN_SECONDS, or 300). On CUDA also how long NCCL may "
     "take to connect them (default 300)",
     [](Arguments &a) -> Target { return &a.options.joinTimeout; },
     checkAboveZero},
    {"--flight-recorder", "FILE.json",
     "Where a rank writes the last commands of its streams before --watchdog "
     "ends the job (default flight-recorder.json); of several ranks, rank R "
     "writes FILE.R.json",
     [](Arguments &a) -> Target { return &a.options.flightRecorder; }, path},
    {"--info", nullptr, "Print inputs, units, parameters and memory, and stop",
     [](Arguments &a) -> Target { return &a.options.info; }},
    {"--manifest", nullptr,
     "Print the compiler's description of the program as JSON, and stop",
     [](Arguments &a) -> Target { return &a.options.manifest; }},
};

} // namespace

std::span<const Flag> flagTable() { return flags; }

} // namespace fsdpc::runtime

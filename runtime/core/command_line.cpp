// The program's flags. One table describes them; CLI11 splits the command line
// and prints --help. Values are checked here, so that every error message names
// what would have been right, and a misspelt flag or input gets the nearest one
// suggested.
#include "runtime/core/command_line.h"
#include "runtime/core/flag_values.h"
#include "runtime/core/spelling.h"
#include "shared/foreign_names.h"
#include "shared/memory_plan.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace fsdpc::runtime {
namespace {

// The command line as CLI11 fills it in.
struct Arguments {
  Options options;
  std::vector<std::string> data, tokens, eval, evalTokens;
  int64_t steps = -1; // not given
  bool noGraph = false;
};

// A flag whose value may be left out, with `=`; then it is `otherwise`.
struct OptionalText {
  std::string *text;
  const char *otherwise;
};

// Where a flag's value goes. A flag of type bool takes no value; one of a list
// may be repeated.
using Target =
    std::variant<bool *, int *, int64_t *, uint64_t *, double *, std::string *,
                 std::vector<std::string> *, OptionalText>;

// One row of the table.
struct Flag {
  const char *name;
  const char *value; // the name of its value in --help; null: takes none
  const char *help;
  // A function instead of an address, because the table is constant and the
  // Arguments are made per call.
  Target (*target)(Arguments &);
  Status (*check)(const std::string &value) = nullptr;
};

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

// "100" or "15m".
Status interval(const std::string &text) {
  bool minutes = !text.empty() && text.back() == 'm';
  if (!minutes)
    return checkInteger(text, 1, int64_t(1) << 40);
  return checkInteger(text.substr(0, text.size() - 1), 1, 1 << 20);
}

Status duration(const std::string &text) {
  double seconds;
  if (parseDuration(text, seconds) && seconds > 0)
    return {};
  return Error{"'" + text +
               "' is not a time such as 90s, 30m, 12h or 11:30:00"};
}

Status weights(const std::string &text) {
  FSDPC_TRY(parseWeights(text));
  return {};
}

// "newest", which stands for no value, or a step.
Status stepOrNewest(const std::string &text) {
  return text == "newest" ? Status() : checkInteger(text, 0, int64_t(1) << 40);
}

// Parses only to check. The result is needed after all flags are known.
Status schedule(const std::string &text) {
  FSDPC_TRY(parseSchedule(text));
  return {};
}

// In the order of --help.
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
    {"--weights", "DIR", "Where the model's own files lie, if they moved",
     [](Arguments &a) -> Target { return &a.options.weights; }, path},
    {"--init", "FILE.safetensors",
     "Start from these parameters instead, by name or alias",
     [](Arguments &a) -> Target { return &a.options.init; }, path},
    {"--log", "FILE.jsonl", "Write a header and a line per step",
     [](Arguments &a) -> Target { return &a.options.log; }, path},
    {"--tensorboard", "DIR",
     "Write the curves of the log as an event file in this folder, for "
     "TensorBoard; a resumed run adds a file",
     [](Arguments &a) -> Target { return &a.options.tensorboard; }, path},
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
    {"--checkpoint", "DIR",
     "Write checkpoints to this folder, from which --resume continues: one "
     "after the last step, or when a signal ends the run",
     [](Arguments &a) -> Target { return &a.options.checkpoint; }, path},
    {"--checkpoint-every", "N|Mm",
     "Write one after every N steps, or after M minutes",
     [](Arguments &a) -> Target { return &a.options.checkpointEvery; },
     interval},
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
     "it across such groups; divides N (default: the ranks of a node)",
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
    {"--watchdog", "S",
     "End the job when a rank has been silent, or on CUDA a collective has not "
     "ended, for S seconds (default 600; 0: never)",
     [](Arguments &a) -> Target { return &a.options.device.watchdogSeconds; },
     checkAtLeastZero},
    {"--info", nullptr, "Print inputs, units, parameters and memory, and stop",
     [](Arguments &a) -> Target { return &a.options.info; }},
    {"--manifest", nullptr,
     "Print what the compiler wrote down of the program as JSON, and stop",
     [](Arguments &a) -> Target { return &a.options.manifest; }},
};

// Registers one row with CLI11, by the type of its target.
void addFlag(CLI::App &app, const Flag &flag, Arguments &arguments) {
  auto add = [&](auto to) {
    using Type = std::remove_pointer_t<decltype(to)>;
    if constexpr (std::is_same_v<Type, bool>) {
      app.add_flag(flag.name, *to, flag.help);
      return;
    } else {
      CLI::Option *option;
      if constexpr (std::is_same_v<Type, OptionalText>)
        option = app.add_flag(std::string(flag.name) + "{" + to.otherwise + "}",
                              *to.text, flag.help);
      else
        option = app.add_option(flag.name, *to, flag.help);
      option->type_name(flag.value);
      if constexpr (std::is_same_v<Type, std::vector<std::string>>)
        // Each --data takes one value. By default CLI11 would let a list
        // swallow the arguments that follow it.
        option->expected(1)->multi_option_policy(
            CLI::MultiOptionPolicy::TakeAll);
      // CLI11 takes an empty text as success.
      if (flag.check)
        option->check(CLI::Validator(
            [check = flag.check](std::string &text) {
              Status checked = check(text);
              return checked ? std::string() : checked.error().message;
            },
            ""));
    }
  };
  std::visit(add, flag.target(arguments));
}

// The end of --help: the program's own inputs, and examples with their names.
std::string footer(const Manifest &manifest) {
  std::string inputs, data;
  for (const Input &input : manifest.inputs) {
    inputs += "  " + input.name + " " + input.dtype + "[";
    for (size_t axis = 0; axis < input.shape.size(); ++axis)
      inputs += (axis ? ", " : "") + std::to_string(input.shape[axis]);
    inputs += "]\n";
    data += " --data " + input.name + "=" + input.name + ".npy";
  }
  return "Inputs (their first axis is one microbatch):\n" + inputs +
         "\n"
         "A step runs K microbatches on each of N ranks; V = N*K. Microbatch j "
         "of step s\ntakes samples (s*V+j)*b to (s*V+j+1)*b-1, b a "
         "microbatch's "
         "samples, rank r the\nmicrobatches j = k*N+r. So N and K can be "
         "traded "
         "without changing what is learnt.\n\n"
         "Examples:\n"
         "  mpirun -np 4 PROGRAM" +
         data +
         " --steps 1000 --log run.jsonl --save out.safetensors\n"
         "  PROGRAM --ranks 2" +
         data +
         " --steps 100 --lr-schedule=cosine,warmup=10,min=1e-5\n"
         "  text as bytes, labels one further: --tokens ids=book.txt:u8 "
         "--tokens labels=book.txt:u8+1";
}

// The error of an argument that is no flag.
Error unknown(const std::string &argument) {
  if (argument.rfind("-", 0) != 0)
    return {"unexpected argument '" + argument + "'; see --help"};
  std::string name = argument.substr(0, argument.find('='));
  if (std::string advice = adviceOnFlag(name); !advice.empty())
    return {"unknown flag '" + name + "'; " + advice};
  std::vector<std::string> names = {"--help"};
  for (const Flag &flag : flags)
    names.push_back(flag.name);
  std::string near = meant(name, names);
  return {"unknown flag '" + name + "'" +
          (near.empty() ? "; see --help" : near)};
}

// Translates --checkpoint-every, and refuses flags that have no folder.
Status completeCheckpoints(Options &options) {
  if (options.checkpoint.empty())
    for (auto &[given, name] :
         {std::pair(!options.checkpointEvery.empty(), "--checkpoint-every"),
          std::pair(options.keep != 0, "--keep"),
          std::pair(!options.afterCheckpoint.empty(), "--after-checkpoint"),
          std::pair(!options.resume.empty(), "--resume")})
      if (given)
        return Error{std::string(name) + " needs --checkpoint DIR"};
  if (options.keepEvery != 0 && options.keep == 0)
    return Error{
        "--keep-every needs --keep K; without it all checkpoints stay"};
  if (options.checkpointEvery.empty())
    return {};
  bool minutes = options.checkpointEvery.back() == 'm';
  int64_t number = std::stoll(options.checkpointEvery);
  (minutes ? options.checkpointMinutes : options.checkpointSteps) = number;
  return {};
}

// Reads --eval and --eval-tokens, and refuses flags that need them.
Status completeEvaluation(Arguments &arguments, const Manifest &manifest) {
  Options &options = arguments.options;
  if (arguments.eval.empty() && arguments.evalTokens.empty()) {
    for (auto &[given, name] :
         {std::pair(options.evalEvery != 0, "--eval-every"),
          std::pair(options.evalSteps != 0, "--eval-steps"),
          std::pair(!options.best.empty(), "--best"),
          std::pair(options.patience != 0, "--patience"),
          std::pair(arguments.steps == 0, "--steps 0")})
      if (given)
        return Error{std::string(name) + " needs --eval NAME=FILE"};
    return {};
  }
  if (!options.trace.empty())
    return Error{"--trace shows steps only; omit it or --eval"};
  auto sources = assignData(arguments.eval, arguments.evalTokens, manifest,
                            {"--eval", "--eval-tokens"});
  FSDPC_TRY(sources);
  options.eval = std::move(*sources);
  return {};
}

bool keepsAverages(const Manifest &manifest) {
  return std::any_of(manifest.layouts.begin(), manifest.layouts.end(),
                     [](const Layout &layout) { return layout.average; });
}

} // namespace

Result<Options> parseCommandLine(int argc, const char *const *argv,
                                 const Manifest &manifest) {
  CLI::App app("Trains the model that this program was compiled from.");
  Arguments arguments;
  Options &options = arguments.options;
  options.program = argc > 0 ? argv[0] : "program";
  // The compiled rate is the default of --lr.
  options.lr = manifest.lr;
  app.name(options.program);
  // Unknown arguments are collected, so that `unknown` can suggest a flag.
  app.allow_extras();
  app.footer(footer(manifest));
  for (const Flag &flag : flags)
    addFlag(app, flag, arguments);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &) {
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError &fault) {
    return Error{fault.what()};
  }
  for (const std::string &argument : app.remaining())
    return unknown(argument);
  if (options.shardGroup && !usesGroups(manifest))
    return Error{"'--shard-group' has no effect: the program has the strategy "
                 "'" +
                 manifest.strategy + "'; compile it with '--strategy=hybrid'"};
  // These two need neither data nor steps.
  if (options.info || options.manifest)
    return options;
  FSDPC_TRY(completeCheckpoints(options));
  if (!options.timeLimit.empty())
    parseDuration(options.timeLimit, options.timeLimitSeconds);
  if (!options.saveEma.empty() && !keepsAverages(manifest))
    return Error{"--save-ema: the program keeps no average of the parameters; "
                 "compile it with --ema=DECAY"};
  options.device.graphs = !arguments.noGraph;
  Result<LrSchedule> parsed = parseSchedule(options.scheduleText);
  FSDPC_TRY(parsed);
  options.schedule = *parsed;
  options.steps = std::max<int64_t>(0, arguments.steps);
  bool trains = arguments.steps != 0;
  FSDPC_TRY(completeEvaluation(arguments, manifest));
  // A run that only evaluates needs no other samples.
  if (trains || !arguments.data.empty() || !arguments.tokens.empty()) {
    auto sources = assignData(arguments.data, arguments.tokens, manifest,
                              {"--data", "--tokens"});
    FSDPC_TRY(sources);
    options.data = std::move(*sources);
  } else {
    options.data = options.eval;
  }
  if (!options.mixText.empty())
    options.mix = *parseWeights(options.mixText);
  if (arguments.steps < 0)
    return Error{
        "--steps is missing: say how many steps to train, as in --steps 100"};
  return options;
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The program's flags. CLI11 splits the command line by the table of flags
// (flag_table.h) and prints --help. Values are checked here, so that every
// error message names what would have been right, and a misspelt flag or input
// gets the nearest one suggested.
#include "runtime/cli/command_line.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/cli/flag_table.h"
#include "runtime/cli/flag_values.h"
#include "runtime/support/concat.h"
#include "runtime/support/foreign_names.h"
#include "runtime/support/help_format.h"
#include "runtime/support/nearest.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace fsdpc::runtime {
namespace {

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
      // CLI11 takes an empty text as success, and knows nothing of exit codes.
      if (flag.check)
        option->check(CLI::Validator(
            [check = flag.check, &arguments](std::string &text) {
              Status checked = check(text);
              if (checked)
                return std::string();
              arguments.fault = checked.error();
              return checked.error().message;
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
      inputs += concat(axis ? ", " : "", input.shape[axis]);
    inputs += "]\n";
    data += " \\\n      --data " + input.name + "=" + input.name + ".npy";
  }
  return "Inputs (their first axis is one microbatch; without axes, one value "
         "per step):\n" +
         inputs +
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
         " \\\n      --steps 1000 --log run.jsonl --save out.safetensors\n"
         "  PROGRAM --ranks 2" +
         data +
         " \\\n      --steps 100 --lr-schedule=cosine,warmup=10,min=1e-5\n"
         "\nText as bytes, labels one further: --tokens ids=book.txt:u8 "
         "--tokens labels=book.txt:u8+1";
}

// Returns the help with the flags that most runs need.
std::string shortHelp(CLI::App &app, const Manifest &manifest) {
  size_t hidden = 0;
  for (const Flag &flag : flagTable())
    if (!flag.basic) {
      // CLI11 hides the flags of a group without a name.
      app.get_option(flag.name)->group("");
      ++hidden;
    }
  app.footer(concat(hidden, " more flags: ", app.get_name(), " --help-all\n\n",
                    footer(manifest)));
  return app.help();
}

// The error of an argument that is not a flag: advice if it is another tool's
// name, else the nearest flag.
Error unknown(const std::string &argument) {
  if (argument.rfind("-", 0) != 0)
    return commandLineError("unexpected argument '" + argument +
                            "'; see --help");
  std::string name = argument.substr(0, argument.find('='));
  if (std::string advice = adviceOnFlag(name); !advice.empty())
    return commandLineError("unknown flag '" + name + "'; " + advice);
  std::vector<std::string> names = {"--help", "--help-all"};
  for (const Flag &flag : flagTable())
    names.push_back(flag.name);
  std::string near = meant(name, names);
  return commandLineError("unknown flag '" + name + "'" +
                          (near.empty() ? "; see --help" : near));
}

// Translates --checkpoint-every, and refuses flags that have no folder.
Status completeCheckpoints(Options &options) {
  if (options.checkpoint.empty())
    for (auto &[given, name] :
         {std::pair(!options.checkpointEvery.empty(), "--checkpoint-every"),
          std::pair(options.checkpointTrained, "--checkpoint-trained"),
          std::pair(options.keep != 0, "--keep"),
          std::pair(!options.afterCheckpoint.empty(), "--after-checkpoint"),
          std::pair(!options.resume.empty(), "--resume"),
          std::pair(options.onNonFinite.kind == NonFinitePolicy::rollback,
                    "--on-nonfinite=rollback")})
      if (given)
        return commandLineError(std::string(name) + " needs --checkpoint DIR");
  if (options.keepEvery != 0 && options.keep == 0)
    return commandLineError(
        "--keep-every needs --keep K; without it all checkpoints stay");
  if (options.checkpointEvery.empty())
    return {};
  bool minutes = options.checkpointEvery.back() == 'm';
  // stoll stops at the 'm'.
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
          std::pair(!options.predictions.empty(), "--predict"),
          std::pair(arguments.steps == 0, "--steps 0")})
      if (given)
        return commandLineError(std::string(name) + " needs --eval NAME=FILE");
    return {};
  }
  if (!options.trace.empty())
    return commandLineError("--trace shows steps only; omit it or --eval");
  auto sources = assignData(arguments.eval, arguments.evalTokens, manifest,
                            {"--eval", "--eval-tokens"});
  FSDPC_TRY(sources);
  options.eval = std::move(*sources);
  return {};
}

// Returns true if the program was compiled with --ema.
bool keepsAverages(const Manifest &manifest) {
  return std::any_of(manifest.layouts.begin(), manifest.layouts.end(),
                     [](const Layout &layout) { return layout.average; });
}

// Returns true if the program was compiled with --offload.
bool offloads(const Manifest &manifest) {
  return manifest.activationFileBytes > 0 ||
         std::any_of(manifest.layouts.begin(), manifest.layouts.end(),
                     [](const Layout &layout) { return layout.isOffloaded(); });
}

// Refuses flags that the program cannot follow, or that have no effect without
// another one.
Status refuseUseless(const Options &options, const Manifest &manifest) {
  if (options.histogramEvery != 0 && options.tensorboard.empty())
    return commandLineError("--histogram-every needs --tensorboard DIR");
  if (options.histogramEvery != 0 && manifest.target != "host")
    return commandLineError("--histogram-every: a program of the target '" +
                            manifest.target +
                            "' does not measure its updates; omit the flag");
  if (!options.rename.empty() && options.init.empty())
    return commandLineError(
        "--rename needs --init FILE, whose names it changes; --save-rename "
        "changes those of --save");
  if (options.saveTrained && options.save.empty() && options.saveEma.empty() &&
      options.best.empty())
    return commandLineError("--save-trained needs --save, --save-ema or "
                            "--best, whose files it makes smaller");
  if (!options.saveRename.isEmpty() && options.save.empty() &&
      options.saveEma.empty() && options.best.empty())
    return commandLineError("--save-rename needs --save, --save-ema or "
                            "--best, whose names it changes");
  if (!options.saveEma.empty() && !keepsAverages(manifest))
    return commandLineError(
        "--save-ema: the program keeps no average of the parameters; "
        "compile it with --ema=DECAY");
  if (!options.offloadDir.empty() && !offloads(manifest))
    return commandLineError(
        "--offload-dir: the program keeps all that it has in memory; "
        "compile it with --offload");
  if (!options.offloadDir.empty() && offloadsToPinned(manifest))
    return commandLineError(
        "--offload-dir: a program of the target '" + manifest.target +
        "' keeps what is offloaded in pinned memory; omit the flag");
  return {};
}

} // namespace

// Refuses a flag that has no effect, as the compiler does: ignoring it would
// run another training than was asked for.
Result<Options> parseCommandLine(int argc, const char *const *argv,
                                 const Manifest &manifest) {
  CLI::App app("Trains the model that this program was compiled from.");
  HelpFormat::setOn(app);
  Arguments arguments;
  Options &options = arguments.options;
  options.program = argc > 0 ? argv[0] : "program";
  // The compiled rate is the default of --lr.
  options.lr = manifest.lr;
  app.name(options.program);
  // Unknown arguments are collected, so that `unknown` can suggest a flag.
  app.allow_extras();
  app.set_help_flag("-h,--help", "Print the flags that most runs need");
  app.set_help_all_flag("--help-all", "Print all flags");
  app.footer(footer(manifest));
  for (const Flag &flag : flagTable())
    addFlag(app, flag, arguments);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &) {
    options.help = shortHelp(app, manifest);
    return options;
  } catch (const CLI::CallForAllHelp &) {
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError &fault) {
    // A value may name a file, which is wrong input.
    return arguments.fault ? arguments.fault->reworded(fault.what())
                           : commandLineError(fault.what());
  }
  for (const std::string &argument : app.remaining())
    return unknown(argument);
  if (options.shardGroup && !usesGroups(manifest))
    return commandLineError(
        "'--shard-group' has no effect: the program has the strategy "
        "'" +
        manifest.strategy +
        "'; compile it with '--strategy=hybrid' or '--reshard-to=G'");
  // These two need neither data nor steps.
  if (options.info || options.manifest)
    return options;
  if (options.watchdog >= 0)
    options.device.watchdogSeconds = options.watchdog;
  options.device.firstStepSeconds = options.firstStepTimeout;
  if (options.joinTimeout > 0)
    options.device.joinSeconds = options.joinTimeout;
  if (std::string &file = options.device.tuneProducts; !file.empty()) {
    if (manifest.target == "host")
      return commandLineError(
          "--tune-products: a program of the target 'host' does not "
          "choose among algorithms; omit the flag");
    if (file == productsBesideProgram)
      file = options.program + ".products";
  }
  options.onNonFinite = *parseNonFinite(arguments.onNonFinite);
  Result<Renaming> names =
      Renaming::parse("--save-rename", arguments.saveRename);
  FSDPC_TRY(names);
  options.saveRename = std::move(*names);
  FSDPC_TRY(completeCheckpoints(options));
  FSDPC_TRY(refuseUseless(options, manifest));
  if (!options.timeLimit.empty())
    parseDuration(options.timeLimit, options.timeLimitSeconds);
  options.device.graphs = !arguments.noGraph;
  options.device.symmetricMemory = !arguments.noSymmetricMemory;
  Result<LrSchedule> parsed = parseSchedule(options.scheduleText);
  FSDPC_TRY(parsed);
  options.schedule = *parsed;
  options.steps = std::max<int64_t>(0, arguments.steps);
  bool trains = arguments.steps != 0;
  auto metrics = parseMetrics(arguments.metrics, manifest);
  FSDPC_TRY(metrics);
  options.metrics = std::move(*metrics);
  auto predictions = parsePredictions(arguments.predictions, manifest);
  FSDPC_TRY(predictions);
  options.predictions = std::move(*predictions);
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
    return commandLineError(
        "--steps is missing: say how many steps to train, as in --steps 100");
  return options;
}

} // namespace fsdpc::runtime

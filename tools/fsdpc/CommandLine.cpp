// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of fsdpc, generated with CLI11 from the table of options
// (compiler/options/OptionTable.h), so that flags, help and the options
// of a dump cannot disagree. This is the only file of the compiler that is
// built with exceptions, which CLI11 throws.
#include "tools/fsdpc/CommandLine.h"

#include "compiler/options/OptionTable.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"
#include "runtime/support/foreign_names.h"
#include "runtime/support/help_format.h"
#include "tools/fsdpc/Buckets.h"
#include "tools/fsdpc/Commands.h"
#include "tools/fsdpc/PlanFlags.h"
#include "tools/fsdpc/Version.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <CLI/CLI.hpp>

using namespace fsdpc;
using namespace fsdpc::driver;
using namespace fsdpc::pipeline;

static const char *groupName(fsdp::OptionGroup group) {
  switch (group) {
  case fsdp::OptionGroup::Model:
    return "Model";
  case fsdp::OptionGroup::Sharding:
    return "Sharding";
  case fsdp::OptionGroup::Training:
    return "Training";
  case fsdp::OptionGroup::Schedule:
    return "Schedule";
  case fsdp::OptionGroup::Output:
    return "Output";
  }
  return "";
}

// The help of an option: what it does, its legal values, what it needs, and its
// default.
static std::string describe(const fsdp::OptionInfo &option) {
  std::string text = option.help.str();
  if (std::string legal = option.legalValues(); !legal.empty())
    text += ": " + legal;
  if (option.placeholder == "REGEX")
    text += "; RE2 syntax, searched anywhere in the name";
  if (auto needed = fsdp::neededValues(option); !needed.empty())
    text += "; with --" + option.condition.option.str() + "=" +
            llvm::join(needed, "|");
  std::string absent = option.print(fsdp::CompileOptions());
  if (option.mayRepeat)
    text += "; may be repeated";
  else if (!absent.empty() && !option.isFlag)
    text += " (default " + absent + ")";
  return text;
}

static std::string commandName(Command command) {
  switch (command) {
  case Command::Compile:
    return "fsdpc";
  case Command::Check:
    return "fsdpc check";
  case Command::Simulate:
    return "fsdpc simulate";
  case Command::Tune:
    break;
  }
  return "fsdpc tune";
}

// Prints an error and returns the exit code of a wrong command line.
static int usageError(const std::string &message) {
  return int(runtime::printError(commandLineError(message)));
}

// Returns "; did you mean '--flag'?" for a misspelt flag, or nothing. Of long
// names only; a short flag is near to everything.
static std::string meantFlag(const std::string &flag, const CLI::App &app) {
  std::vector<std::string> known;
  for (const CLI::Option *option : app.get_options())
    for (const std::string &name : option->get_lnames())
      known.push_back("--" + name);
  std::vector<llvm::StringRef> names(known.begin(), known.end());
  return fsdp::meant(llvm::StringRef(flag).split('=').first, names);
}

// Returns what to say of a second word that is not a flag. The first was taken
// for the model, and may be a misspelt command or that of another tool.
static std::string unexpectedWord(const std::string &first,
                                  const std::string &second) {
  if (first.find_first_of("./") != std::string::npos)
    return "unexpected argument '" + second +
           "'; one model is compiled at a time";
  std::vector<completion::Command> commands = allCommands();
  std::vector<llvm::StringRef> names;
  for (const completion::Command &command : commands)
    names.push_back(command.name);
  std::string near = fsdp::meant(first, names);
  return "unknown command '" + first + "'" +
         (near.empty() ? "; 'fsdpc run MODEL' compiles and trains" : near) +
         " (see --help)";
}

// Adds the flags that only the driver reads. They write to `line`.
static void addDriverFlags(CLI::App &app, CommandLine &line, std::string &phase,
                           std::string &timing) {
  app.set_version_flag("--version", versionText,
                       "prints versions, commit and targets");
  app.set_help_flag("-h,--help", "prints the flags that most compiles need");
  app.set_help_all_flag("--help-all", "prints all flags");
  app.add_option("model", line.model, "the model, .onnx or .mlir")
      // Not required here: `fsdpc --help` has no model, and a missing one has a
      // message of its own.
      ->option_text("MODEL");
  auto add = [&](const char *flag, std::string &value, const char *text,
                 const std::string &help) {
    app.add_option(flag, value, help)->option_text(text)->group("Output");
  };
  add("-o,--output", line.output, "FILE",
      "the program, or the module of --compile-to (- for stdout)");
  add("--compile-to", phase, "PHASE",
      "stops after a phase and writes the module: " + phaseNames());
  add("--dump-ir", line.dumpFolder, "DIR",
      "writes NN-PASS.mlir after each pass; for --target=cuda also "
      "kernels.ARCH.ptx and .cubin");
  app.add_flag_callback(
         "--dump-full", [&] { line.dumpForm = DumpForm::Full; },
         "writes the dumps of --dump-ir for tools: each op in one line, with "
         "all of its attributes")
      ->group("Output");
  add("--cuda-path", line.cudaPath, "DIR",
      "the CUDA toolkit (default: $CUDA_HOME, $CUDA_PATH, /usr/local/cuda, "
      "around the nvcc on PATH, NVIDIA's packages from PyPI)");
  add("--kernel-report", line.kernelReport, "FILE",
      "for --target=cuda: registers, stack, spills and shared memory of each "
      "kernel on each architecture");
  add("--schedule-table", line.scheduleTable, "FILE",
      "writes the schedule as a table that can be edited and given to "
      "--schedule");
  add("--profile", line.profile, "TRACE.json",
      "makes the schedule with the durations of ops that a run of this model "
      "has measured (its --trace), not with the machine's");
  add("--report", line.report, "FILE.html",
      "writes a page about the plan: the step on a timeline, memory, units and "
      "what bounds them; it needs no network");
  add("--report-trace", line.reportTrace, "TRACE.json",
      "the trace of a run of this program, which the report sets beside the "
      "prediction");
  app.add_option("--weights", line.weightFolders,
                 "a folder that a dump may take weights from, besides its own; "
                 "may be repeated")
      ->option_text("DIR")
      ->group("Output");
  add("--cache", line.cache, "DIR",
      "keeps the code of kernels in DIR/kernels for later compiles, or nowhere "
      "with none (default: fsdpc in $XDG_CACHE_HOME or ~/.cache)");
  app.add_flag("--absolute-paths", line.absolutePaths,
               "lets the program find the model's weights by absolute paths, "
               "wherever it moves, not by paths from its own folder")
      ->group("Output");
  // CLI11's messages would name the type of the value.
  app.add_flag("--timing{parts}", timing,
               "prints a table of the compile's seconds by parts, or also "
               "those of each pass (--timing=passes)")
      ->option_text("[=passes]")
      ->group("Output");
  app.add_flag("-q,--quiet", line.quiet, "prints errors and warnings alone")
      ->group("Output");
  app.add_flag("-v,--verbose", line.verbose,
               "prints also what ranks send, what stays f32, and the parts of "
               "the step and of the memory")
      ->group("Output");
}

// A row of the table with its flag. CLI11 only collects the texts, and
// setOption parses them, as it does for the options of a dump.
struct TableFlag {
  const fsdp::OptionInfo *option;
  CLI::Option *flag;
};

static std::vector<TableFlag> addTableFlags(CLI::App &app) {
  std::vector<TableFlag> flags;
  for (const fsdp::OptionInfo &option : fsdp::allOptions()) {
    std::string name = "--" + option.name.str();
    const std::string help = describe(option);
    // One value per use, and every use is kept: a repeated option must not
    // swallow the model's name, and setOptions refuses the others by name.
    CLI::Option *flag =
        option.isFlag
            ? app.add_flag(name, help)
            : app.add_option(name, help)
                  ->type_size(1)
                  ->option_text(option.placeholder.str())
                  ->allow_extra_args(false)
                  ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    flag->group(groupName(option.group));
    flags.push_back({&option, flag});
  }
  return flags;
}

// The options that --help shows.
static constexpr llvm::StringLiteral basicOptions[] = {
#define BASIC(field, name, ...) name,
#define OPTION(...)
#include "runtime/support/compile_options.def"
};

// The driver's flags that only --help-all shows.
static constexpr llvm::StringLiteral rareFlags[] = {
    "--cache",         "--cuda-path", "--dump-full",
    "--kernel-report", "--profile",   "--report-trace",
    "--weights",       "--timing",    "--schedule-table"};

// Hides what only --help-all shows, and says so at the end.
static void shortenHelp(CLI::App &app, const std::vector<TableFlag> &flags) {
  size_t hidden = std::size(rareFlags);
  for (auto [option, flag] : flags) {
    if (llvm::is_contained(basicOptions, option->name))
      continue;
    // CLI11 hides the flags of a group without a name.
    flag->group("");
    ++hidden;
  }
  for (llvm::StringLiteral name : rareFlags)
    app.get_option(name.str())->group("");
  app.footer(concat(hidden, " more flags: ", app.get_name(), " --help-all"));
}

// Lets CLI11 read the line. Returns -1 or the exit code. The exit code is that
// of CLI11 for help and version, 2 otherwise.
static int parseFlags(CLI::App &app, const std::vector<TableFlag> &flags,
                      int argc, char **argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &help) {
    // Help and version are exceptions too, with exit code 0.
    shortenHelp(app, flags);
    return app.exit(help);
  } catch (const CLI::CallForAllHelp &help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion &version) {
    return app.exit(version);
  } catch (const CLI::ExtrasError &) {
    // An argument that is left over is either a second model or an unknown
    // flag.
    std::string extra = app.remaining().empty() ? "" : app.remaining().front();
    if (extra.rfind("-", 0) != 0)
      return usageError(
          unexpectedWord(app.get_option("model")->as<std::string>(), extra));
    if (std::string advice = adviceOnFlag(extra); !advice.empty())
      return usageError("unknown flag '" + extra.substr(0, extra.find('=')) +
                        "'; " + advice + " (see --help)");
    return usageError("unknown flag '" + extra + "'" + meantFlag(extra, app) +
                      " (see --help)");
  } catch (const CLI::ParseError &error) {
    return usageError(error.what());
  }
  return -1;
}

// Checks what CLI11 does not know of the driver's flags. Returns -1 or the exit
// code.
static int checkDriverFlags(CommandLine &line, const std::string &phase,
                            const std::string &timing) {
  std::string name = commandName(line.command);
  if (line.model.empty())
    return usageError("no model given; " + name +
                      (line.command == Command::Compile
                           ? " MODEL -o PROGRAM (see --help)"
                           : " MODEL"));
  if (!line.weightFolders.empty() &&
      !llvm::StringRef(line.model).ends_with(".mlir"))
    return usageError("'--weights' names folders for a dump, and '" +
                      line.model +
                      "' is none; a model's weights lie beside it");
  if (!timing.empty() && timing != "parts" && timing != "passes")
    return usageError("'" + timing +
                      "' in '--timing' is neither parts nor passes");
  if (!timing.empty())
    line.timing =
        timing == "parts" ? TimingDetail::Parts : TimingDetail::Passes;
  if (line.dumpFolder.empty() && line.dumpForm == DumpForm::Full)
    return usageError("'--dump-full' has no effect without '--dump-ir'");
  if (line.quiet && line.verbose)
    return usageError("'--quiet' and '--verbose' contradict each other; omit "
                      "one of them");
  if (line.report.empty() && !line.reportTrace.empty())
    return usageError("'--report-trace' has no effect without '--report'");
  if (line.command == Command::Tune && !line.profile.empty())
    return usageError("'--profile' is of one program, and '" + name +
                      "' plans many; calibrate a machine instead ('fsdpc "
                      "calibrate')");
  if (line.command != Command::Compile) {
    bool checks = line.command == Command::Check;
    line.last = checks ? Phase::Runtime : Phase::Memory;
    if (!line.output.empty() || !line.dumpFolder.empty() ||
        !line.kernelReport.empty() || phase != phaseName(Phase::Executable))
      return usageError("'" + name + "' writes no " +
                        (checks ? "file" : "program") +
                        "; omit '--output', '--compile-to', '--dump-ir' and "
                        "'--kernel-report'");
    if (line.command == Command::Tune &&
        llvm::StringRef(line.model).ends_with(".mlir"))
      return usageError("'" + line.model +
                        "' is a dump, whose settings are "
                        "decided; give 'fsdpc tune' the .onnx model");
    if (checks && !line.report.empty())
      return usageError("'fsdpc check' writes no file; omit '--report', or use "
                        "'fsdpc simulate'");
    return -1;
  }
  std::optional<Phase> last = parsePhase(phase);
  if (!last)
    return usageError("unknown phase '" + phase +
                      "' in '--compile-to'; known: " + phaseNames());
  line.last = *last;
  if (!line.scheduleTable.empty() && line.last < Phase::Schedule)
    return usageError("'--schedule-table' requires the phase 'schedule'; the "
                      "compile stops after '" +
                      phase + "'");
  if (!line.profile.empty() && line.last < Phase::Schedule)
    return usageError("'--profile' requires the phase 'schedule'; the compile "
                      "stops after '" +
                      phase + "'");
  if (!line.report.empty() && line.last < Phase::Memory)
    return usageError("'--report' requires the phase 'memory'; the compile "
                      "stops after '" +
                      phase + "'");
  if (line.output.empty() && line.last == Phase::Executable)
    return usageError("no output given; add '-o PROGRAM', or '--compile-to'");
  return -1;
}

// Sets the options of the compile. Returns -1 or the exit code.
static int setOptions(const std::vector<TableFlag> &flags, CommandLine &line) {
  // Only options that were given are set, so that `options.given` lists them
  // and a dump can tell them from defaults.
  for (auto [option, flag] : flags) {
    if (flag->count() == 0)
      continue;
    if (!option->mayRepeat && flag->count() > 1)
      return usageError("'--" + option->name.str() + "' is given twice");
    // A flag that stands alone has the result "true".
    for (const std::string &text : flag->results()) {
      std::string error = option->name == "dim"
                              ? takeDimension(text, line)
                              : fsdp::setOption(*option, text, line.options);
      if (!error.empty())
        return usageError(error);
    }
  }
  return -1;
}

static const char *const compileHelp =
    "Compiles a training graph (ONNX, or a dump of an earlier compile) into "
    "one\n"
    "program that trains it, sharded over the ranks of mpirun.\n"
    "\n"
    "  fsdpc gpt.onnx -o train --unit-class='*Block' --lr=3e-4\n"
    "  mpirun -np 2 ./train --data input_ids=tokens.npy --steps 1000\n"
    "\n"
    "  fsdpc gpt.onnx -o train --dump-ir=ir         # writes the IR after each "
    "pass\n"
    "  fsdpc ir/*-schedule-prefetch.mlir -o train   # goes on from an edited "
    "one\n"
    "\n"
    "Other commands, each with --help:\n"
    "\n"
    "  fsdpc run          compiles, starts, watches and restarts a job\n"
    "  fsdpc check        says if a model compiles, without compiling\n"
    "  fsdpc top          shows running jobs by their logs, and plots\n"
    "  fsdpc ckpt         inspects, verifies and converts checkpoints\n"
    "  fsdpc export       writes trained values back into the ONNX\n"
    "  fsdpc simulate     estimates steps on other numbers of ranks\n"
    "  fsdpc tune         finds the flags of the fastest step that fits\n"
    "  fsdpc diff         tells two schedules apart\n"
    "  fsdpc calibrate    measures this machine for --machine\n"
    "  fsdpc doctor       says what this machine has and what it lacks\n"
    "  fsdpc completion   completes words in bash, zsh and fish\n";

static const char *const checkHelp =
    "Says if a model compiles, without compiling it: all that is refused in "
    "one list, or what was recognised, the units, and the memory per rank. "
    "Takes the flags of a compile.\n"
    "A model file that is called 'check' is written './check'.\n\n"
    "  fsdpc check gpt.onnx --unit-class='*Block' --plan-ranks=16";

static const char *const simulateHelp =
    "Estimates steps of a model, or of the dump of a compile, on a machine: "
    "step, throughput, what the network exposes and the planned peak, for any "
    "number of ranks. Takes the flags of a compile; --machine and "
    "--plan-threads also "
    "go with a dump.\n\n"
    "  fsdpc simulate gpt.onnx --machine=h100 --target=cuda "
    "--ranks=64,256,1024\n"
    "  fsdpc simulate ir/*-verify-memory.mlir --machine=b200 "
    "--stragglers=1,0.1";

static const char *const tuneHelp =
    "Plans a model with many settings and prints those that no other beats in "
    "both step and planned peak, with their flags, and why the fastest is "
    "fastest. "
    "Takes the flags of a compile. What you give is kept; the others of "
    "--strategy, --reshard-to, --recompute, --prefetch and --param-dtype are "
    "varied.\n\n"
    "  fsdpc tune gpt.onnx --machine=h100 --target=cuda --ranks=64 "
    "--memory=40GiB";

static const char *helpOf(Command command) {
  switch (command) {
  case Command::Compile:
    return compileHelp;
  case Command::Check:
    return checkHelp;
  case Command::Simulate:
    return simulateHelp;
  case Command::Tune:
    break;
  }
  return tuneHelp;
}

// Returns the command line for --info, in which absolute paths are file names:
// a program's bytes depend on no folder. A word may be a path, "--flag=PATH" or
// "-oPATH"; the glob "/layers/*" is none, as there is no such folder. Nor do
// they depend on the cache.
static std::string recordedLine(llvm::ArrayRef<char *> words) {
  std::string line;
  for (size_t i = 0; i < words.size(); ++i) {
    llvm::StringRef word = words[i];
    if (word == "--cache" || word.starts_with("--cache=")) {
      // The folder may be the next word.
      i += word == "--cache";
      continue;
    }
    size_t begin = 0;
    if (word.starts_with("--"))
      begin = std::min(word.find('=') + 1, word.size());
    else if (word.starts_with("-o"))
      begin = 2;
    llvm::StringRef path = word.drop_front(begin);
    llvm::StringRef folder = llvm::sys::path::parent_path(path);
    if (path.starts_with("/") && folder != "/" &&
        llvm::sys::fs::is_directory(folder))
      path = llvm::sys::path::filename(path);
    line += (line.empty() ? "" : " ") + word.take_front(begin).str();
    line += path;
  }
  return line;
}

// Adds all flags of `line.command`, and returns those of the table.
static std::vector<TableFlag> addFlags(CLI::App &app, CommandLine &line,
                                       std::string &phase,
                                       std::string &timing) {
  addDriverFlags(app, line, phase, timing);
  if (line.command == Command::Simulate || line.command == Command::Tune)
    addPlanFlags(app, line);
  return addTableFlags(app);
}

completion::Command fsdpc::driver::describeCommand(Command command) {
  CommandLine line;
  line.command = command;
  CLI::App app;
  std::string phase, timing;
  std::vector<TableFlag> table = addFlags(app, line, phase, timing);
  std::vector<completion::Flag> flags = completion::flagsOf(app);
  // CLI11 takes the values of these as any text.
  auto setChoices = [&](const std::string &name, const std::string &values) {
    for (completion::Flag &flag : flags)
      if (flag.names.back() == name && !values.empty())
        flag.choices = completion::split(values, '|');
  };
  for (const TableFlag &each : table)
    setChoices("--" + each.option->name.str(), each.option->legalValues());
  setChoices("--compile-to", phaseNames());
  std::string name = commandName(command).substr(strlen("fsdpc"));
  return {name.substr(std::min<size_t>(name.size(), 1)),
          helpOf(command),
          flags,
          {}};
}

int fsdpc::driver::parseCommandLine(int argc, char **argv, CommandLine &line) {
  CLI::App app(helpOf(line.command), commandName(line.command));
  HelpFormat::setOn(app);
  std::string phase = "executable", timing;
  std::vector<TableFlag> flags = addFlags(app, line, phase, timing);
  // The order is that of the messages: what is not a flag at all, then the
  // driver's flags, then the options.
  if (int code = parseFlags(app, flags, argc, argv); code >= 0)
    return code;
  if (int code = checkDriverFlags(line, phase, timing); code >= 0)
    return code;
  if (int code = setOptions(flags, line); code >= 0)
    return code;
  setRanks(line);
  // The text is for --info. The quotes of the shell are gone.
  line.text = recordedLine(llvm::ArrayRef(argv, size_t(argc)));
  return -1;
}

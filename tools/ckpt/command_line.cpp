// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of `fsdpc ckpt`, with CLI11. Each subcommand has the flags
// that it reads and no others, and a help with an example that can be copied.
// Errors are one line with exit code 2, as those of fsdpc itself.
#include "runtime/support/diagnostics.h"
#include "runtime/support/help_format.h"
#include "runtime/support/programs.h"
#include "tools/ckpt/commands.h"

#include <CLI/CLI.hpp>

#include <filesystem>

namespace fsdpc::ckpt {

namespace {

// The script is installed beside the runtime's library, with the modules that
// it imports.
std::string scriptPath() {
  std::filesystem::path program = ownProgram();
  return (program.parent_path().parent_path() / "lib" / "ckpt" /
          "torch_convert.py")
      .string();
}

// Adds a subcommand with what all of them have: the positional argument DIR and
// a help with an example.
CLI::App *addCommand(CLI::App &app, Arguments &arguments, const char *name,
                     const char *summary, const std::string &help) {
  CLI::App *command = app.add_subcommand(name, summary);
  command->footer("\n" + help); // below the flags; the list has one line each
  command->add_option("DIR", arguments.input)
      ->required()
      ->description("a checkpoint, or the folder of --checkpoint, of which the "
                    "newest is taken");
  return command;
}

// Each flag that several subcommands share is declared once below.
void addStep(CLI::App *command, Arguments &arguments) {
  command
      ->add_option("--step", arguments.step,
                   "the checkpoint of this step instead of the newest")
      ->option_text("STEP")
      ->check(CLI::NonNegativeNumber);
}
void addJson(CLI::App *command, Arguments &arguments) {
  command->add_flag("--json", arguments.json, "prints JSON");
}
void addOutput(CLI::App *command, Arguments &arguments, const char *text,
               const char *help) {
  command->add_option("-o,--output", arguments.output, help)
      ->option_text(text)
      ->required();
}
void addRanks(CLI::App *command, Arguments &arguments) {
  command
      ->add_option("--ranks", arguments.ranks, "files to write, one per rank")
      ->option_text("M")
      ->check(CLI::Range(1, 1 << 20));
}

// Subcommands that write nothing: inspect, verify and diff.
void addReaders(CLI::App &app, Arguments &arguments) {
  CLI::App *command = addCommand(
      app, arguments, "inspect", "Says what a checkpoint holds",
      "Step, samples, ranks, the settings of the run, layouts, parameters with "
      "shapes and\nnames of their optimizer states, buffers, sizes. Reads the "
      "manifest alone.\n\n  fsdpc ckpt inspect runs/ckpt\n  fsdpc ckpt inspect "
      "runs/ckpt/step-0000120 --json");
  addStep(command, arguments);
  addJson(command, arguments);
  command = addCommand(
      app, arguments, "verify", "Compares every checksum",
      "Reads every byte of one checkpoint or of all in a folder. Exit code 1 "
      "if one is\ndamaged, incomplete or has a file of another checkpoint.\n\n"
      "  fsdpc ckpt verify runs/ckpt");
  addStep(command, arguments);
  addJson(command, arguments);
  command = addCommand(
      app, arguments, "diff",
      "Compares the tensors of two checkpoints or files",
      "DIR and B are checkpoints, safetensors files, or folders with a "
      "model.safetensors.index.json;\nranks and layouts may differ. Prints the "
      "largest absolute and relative difference of\neach tensor that differs. "
      "Exit code 0: equal, 1: different, 3: one cannot be read.\n\n  fsdpc "
      "ckpt diff runs/a runs/b --states\n  fsdpc ckpt diff runs/a "
      "model.safetensors --rtol 1e-5");
  command->add_option("B", arguments.other, "what DIR is compared with")
      ->required();
  addStep(command, arguments);
  addJson(command, arguments);
  command->add_flag("--states", arguments.states,
                    "compares optimizer states too");
  command
      ->add_option(
          "--atol", arguments.absolute,
          "tolerates |a - b| <= ATOL + RTOL * |b| (default: none, bits "
          "must be equal)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--rtol", arguments.relative, "see --atol")
      ->check(CLI::NonNegativeNumber);
}

// Subcommands that write files: consolidate, reshard and convert.
void addWriters(CLI::App &app, Arguments &arguments) {
  CLI::App *command = addCommand(
      app, arguments, "consolidate", "Writes whole weights",
      "One safetensors file, with the bytes of --save; or with "
      "--max-shard-size a folder in\nHugging Face's layout, with an index if "
      "there is more than one file.\n\n  fsdpc ckpt consolidate runs/ckpt -o "
      "model.safetensors\n  fsdpc ckpt consolidate runs/ckpt -o model "
      "--max-shard-size 5GB");
  addStep(command, arguments);
  addOutput(command, arguments, "F",
            "the file, or with --max-shard-size the "
            "folder");
  command
      ->add_option("--max-shard-size", arguments.mostShard,
                   "bytes per file: 5GB, 200MB, 1GiB")
      ->option_text("SIZE")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--rename", arguments.rename,
                   "names that begin with OLD begin with NEW, such as "
                   "'model.='; with a '*' on\nboth sides, whole names; "
                   "repeatable, the first rule that matches counts")
      ->option_text("OLD=NEW")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command = addCommand(
      app, arguments, "reshard", "Writes the checkpoint for other ranks",
      "--resume needs no such copy: it reads a checkpoint of any number of "
      "ranks.\n\n  fsdpc ckpt reshard runs/ckpt --ranks 8 -o runs/ckpt8");
  addStep(command, arguments);
  addRanks(command, arguments);
  addOutput(command, arguments, "DIR",
            "a folder of checkpoints, for --checkpoint and --resume");
  command = addCommand(
      app, arguments, "convert",
      "Converts to and from PyTorch, and from onnxruntime-training",
      "--to dcp: a folder that torch.distributed.checkpoint loads; --to "
      "state-dict: a file\nfor torch.load. Both hold {\"model\": …, "
      "\"optimizer\": {\"state\": …}, \"step\": N, \"sample\": N},\nby the "
      "names of the "
      "state_dict. --from reads the same, or a plain state_dict, or a "
      "safetensors\nfile, and writes a checkpoint to resume from, or with --to "
      "safetensors the weights alone, for\n--init of a program. dcp and "
      "state-dict need a Python with torch. --from onnxruntime reads the "
      "checkpoint of its artifacts,\nwith the moments of AdamW.\n\n  fsdpc "
      "ckpt convert runs/ckpt "
      "--to dcp -o dcp\n  fsdpc ckpt convert model.pt --from state-dict -o "
      "runs/ckpt\n  fsdpc ckpt convert model.pt --from state-dict --to "
      "safetensors -o model.safetensors");
  command
      ->add_option("--to", arguments.to,
                   "dcp or state-dict; with --from safetensors, weights alone")
      ->check(CLI::IsMember({"dcp", "state-dict", "safetensors"}));
  command
      ->add_option("--from", arguments.from,
                   "dcp, state-dict, safetensors or onnxruntime")
      ->check(
          CLI::IsMember({"dcp", "state-dict", "safetensors", "onnxruntime"}));
  addStep(command, arguments);
  addRanks(command, arguments);
  command
      ->add_option("--samples", arguments.samples,
                   "with --from: samples that the training has seen (default: "
                   "as the file says, else 0)")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--python", arguments.python,
                   "a Python that has torch (default python3)")
      ->option_text("PYTHON");
  addOutput(command, arguments, "OUT",
            "the folder or file; with --from a folder of checkpoints");
}

// Returns what is wrong with --from and --to of `convert`, or "".
std::string checkFormats(const Arguments &arguments) {
  const std::string &from = arguments.from, &to = arguments.to;
  if (to.empty() && from.empty())
    return "convert needs --to or --from";
  if (to == "safetensors" && from.empty())
    return "--to safetensors needs --from; consolidate writes a checkpoint's "
           "weights";
  bool fromTorch = from == "dcp" || from == "state-dict";
  if (!to.empty() && !from.empty() && !(to == "safetensors" && fromTorch))
    return "--from " + from + " excludes --to " + to;
  return "";
}

int usageError(const std::string &message) {
  return report(commandLineError(message + " (see fsdpc ckpt --help)"));
}

const char *const help =
    "Reads, checks and converts checkpoints of --checkpoint. A model file that "
    "is called 'ckpt'\nis written './ckpt'.\n\n"
    "  fsdpc ckpt COMMAND --help";

} // namespace

std::vector<completion::Command> describeCkpt() {
  Arguments arguments;
  CLI::App app;
  addReaders(app, arguments);
  addWriters(app, arguments);
  std::vector<completion::Command> commands = {
      {"ckpt", help, completion::flagsOf(app), {}}};
  for (const CLI::App *command : app.get_subcommands(nullptr))
    commands.push_back({"ckpt " + command->get_name(),
                        command->get_description(),
                        completion::flagsOf(*command),
                        {}});
  return commands;
}

int runCkpt(int argc, char **argv) {
  CLI::App app(help, "fsdpc ckpt");
  HelpFormat::setOn(app);
  Arguments arguments;
  arguments.python = "python3";
  arguments.script = scriptPath();
  addReaders(app, arguments);
  addWriters(app, arguments);
  app.require_subcommand(1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &help) {
    return app.exit(help);
  } catch (const CLI::ParseError &error) {
    std::string first = argc > 1 ? argv[1] : "-";
    auto isFirst = [&](const CLI::App *app) {
      return app->get_name() == first;
    };
    if (first[0] != '-' && app.get_subcommands(isFirst).empty())
      return usageError("there is no command '" + first + "'");
    return usageError(error.what());
  }
  const std::string name = app.get_subcommands().front()->get_name();
  if (name == "convert")
    if (std::string fault = checkFormats(arguments); !fault.empty())
      return usageError(fault);
  const struct {
    const char *name;
    int (*run)(const Arguments &);
    bool writes;
  } commands[] = {
      {"inspect", inspect, false}, {"verify", verify, false},
      {"diff", diff, false},       {"consolidate", consolidate, true},
      {"reshard", reshard, true},  {"convert", convert, true}};
  for (auto &command : commands)
    if (name == command.name) {
      if (command.writes)
        runtime::outliveReaders();
      return command.run(arguments);
    }
  return usageError("there is no command '" + name + "'");
}

} // namespace fsdpc::ckpt

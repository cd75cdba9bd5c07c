// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of `fsdpc export`, with CLI11, which throws.
#include "runtime/support/diagnostics.h"
#include "runtime/support/help_format.h"
#include "tools/export/Export.h"

#include <CLI/CLI.hpp>

namespace fsdpc::exporting {

static const char *const help =
    "Writes trained values back into an ONNX model. Everything but the values "
    "keeps its bytes.\nA model file that is called 'export' is written "
    "'./export'.\n\n"
    "  fsdpc export gpt.onnx --weights trained.safetensors -o trained.onnx\n"
    "  fsdpc export gpt.onnx --weights runs/ckpt -o trained.onnx "
    "--external-data";

static void addFlags(CLI::App &app, Arguments &arguments) {
  app.add_option("MODEL", arguments.model, "the model that was compiled")
      ->required();
  app.add_option("--weights", arguments.weights,
                 "a file of --save, a folder in Hugging Face's sharded layout, "
                 "or a checkpoint")
      ->option_text("F")
      ->required();
  app.add_option("-o,--output", arguments.output, "the model to write")
      ->option_text("OUT.onnx")
      ->required();
  app.add_option("--rename", arguments.rename,
                 "names of F that begin with OLD begin with NEW in the model, "
                 "such as '=model.';\nwith a '*' on both sides, whole names; "
                 "repeatable, the first rule that matches counts")
      ->option_text("OLD=NEW")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag(
      "--external-data", arguments.external,
      "writes tensors of 1 KiB and more to OUT.onnx.data; needed above "
      "2 GiB. A model with\nexternal data always gets such a file");
  app.add_flag("--keep-missing", arguments.keepMissing,
               "parameters that F does not have keep the model's values; else "
               "they are an error");
}

completion::Command describeExport() {
  Arguments arguments;
  CLI::App app;
  addFlags(app, arguments);
  return {"export", help, completion::flagsOf(app), {}};
}

int parseArguments(int argc, char **argv, Arguments &arguments) {
  CLI::App app(help, "fsdpc export");
  HelpFormat::setOn(app);
  addFlags(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &help) {
    return app.exit(help);
  } catch (const CLI::ParseError &error) {
    return int(runtime::printError(commandLineError(
        std::string(error.what()) + " (see fsdpc export --help)")));
  }
  return -1;
}

} // namespace fsdpc::exporting

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of `fsdpc completion`, and what CLI11 knows of the flags of
// other commands. Their help is long; a shell shows a line per flag, so a
// summary is cut from it.
#include "runtime/support/diagnostics.h"
#include "runtime/support/help_format.h"
#include "tools/completion/completion.h"

#include <CLI/CLI.hpp>

#include <iostream>

namespace fsdpc::completion {

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

namespace {

const char *const help =
    "Prints a script by which a shell completes commands, flags and values of "
    "fsdpc. A model file that is called 'completion' is written "
    "'./completion'.\n\n"
    "  source <(fsdpc completion bash)    # in ~/.bashrc\n"
    "  source <(fsdpc completion zsh)     # in ~/.zshrc, behind compinit\n"
    "  fsdpc completion fish >~/.config/fish/completions/fsdpc.fish";

// Returns the choices in the name of a value's type, "TEXT:{a,b}" as CLI11
// makes it of CLI::IsMember.
std::vector<std::string> choicesOf(const std::string &type) {
  size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos)
    return {};
  return split(type.substr(open + 1, close - open - 1), ',');
}

} // namespace

std::vector<Flag> flagsOf(const CLI::App &app) {
  std::vector<Flag> flags;
  for (const CLI::Option *option : app.get_options()) {
    Flag flag;
    for (const std::string &name : option->get_snames())
      flag.names.push_back("-" + name);
    for (const std::string &name : option->get_lnames())
      flag.names.push_back("--" + name);
    if (flag.names.empty()) // a positional argument
      continue;
    if (option->get_items_expected_max() > 0) {
      const std::string &text = option->get_option_text();
      flag.value = text.empty() ? "VALUE" : text;
      flag.choices = choicesOf(option->get_type_name());
    }
    flag.help = option->get_description();
    flags.push_back(std::move(flag));
  }
  return flags;
}

std::string summaryOf(const std::string &help) {
  constexpr size_t most = 70;
  std::string text = help.substr(0, help.find_first_of("\n;"));
  for (const char *end : {". ", ": ", " ("})
    text = text.substr(0, text.find(end));
  if (text.size() > most)
    text = text.substr(0, text.rfind(' ', most)) + " …";
  return text;
}

int runCompletion(int argc, char **argv, std::vector<Command> commands) {
  const struct {
    const char *name;
    std::string (*script)(std::span<const Command>);
  } shells[] = {{"bash", bashScript}, {"zsh", zshScript}, {"fish", fishScript}};
  std::vector<std::string> names;
  for (auto &shell : shells)
    names.push_back(shell.name);
  CLI::App app(help, "fsdpc completion");
  HelpFormat::setOn(app);
  std::string wanted;
  app.add_option("SHELL", wanted, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember(names));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &call) {
    return app.exit(call);
  } catch (const CLI::ParseError &error) {
    return int(runtime::printError(commandLineError(
        error.what() + std::string(" (see fsdpc completion --help)"))));
  }
  commands.push_back({"completion", help, flagsOf(app), names});
  for (auto &shell : shells)
    if (wanted == shell.name)
      std::cout << shell.script(commands);
  return 0;
}

} // namespace fsdpc::completion

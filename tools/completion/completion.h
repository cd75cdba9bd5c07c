// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc completion SHELL`: prints a script by which a shell completes the
// words of fsdpc. Commands describe themselves by the CLI11 application that
// parses their words, so scripts and parsers cannot disagree.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace fsdpc::completion {

/// A flag as --help-all shows it.
struct Flag {
  std::vector<std::string> names;   ///< with their dashes
  std::string value;                ///< what its value is called; empty: none
  std::vector<std::string> choices; ///< all legal values; empty: any text
  std::string help;
};

/// A command with its flags. Values without choices, and words that are not
/// flags, complete to names of files.
struct Command {
  std::string name; ///< "run", "ckpt inspect"; "": a compile
  std::string help;
  std::vector<Flag> flags;
  std::vector<std::string> choices; ///< legal words after the name, if a list
};

/// Returns the parts of "a|b" between the separators.
std::vector<std::string> split(const std::string &text, char separator);

/// Returns the flags of `app`, but not those of its subcommands.
std::vector<Flag> flagsOf(const CLI::App &app);

/// Returns the help's first sentence or clause, on one line of at most 70
/// characters.
std::string summaryOf(const std::string &help);

/// Return the scripts. A command comes behind the one that its name begins
/// with.
std::string bashScript(std::span<const Command> commands);
std::string zshScript(std::span<const Command> commands);
std::string fishScript(std::span<const Command> commands);

/// Reads the command line `completion SHELL`, of which argv[0] is "completion",
/// and prints the script for `commands`, to which it adds itself. Returns the
/// exit code.
int runCompletion(int argc, char **argv, std::vector<Command> commands);

} // namespace fsdpc::completion

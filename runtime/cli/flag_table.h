// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of a program's flags: the name, the text of --help, the field that
// a value goes to, and the check of a value. It is apart from the parser,
// because each new feature adds a row here and nothing there.
#pragma once

#include "runtime/cli/command_line.h"
#include "runtime/support/status.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace fsdpc::runtime {

/// The command line as CLI11 fills it in.
struct Arguments {
  Options options;
  std::vector<std::string> data, tokens, eval, evalTokens, metrics, predictions,
      saveRename;
  int64_t steps = -1; ///< not given
  std::string onNonFinite = "stop";
  bool noGraph = false, noSymmetricMemory = false;
  std::optional<Error> fault; ///< of the last check of a value that failed
};

/// A flag whose value may be left out, with `=`; then it is `otherwise`.
struct OptionalText {
  std::string *text;
  const char *otherwise;
};

/// The field that takes a flag's value. A flag of type bool takes no value; one
/// of a list may be repeated.
using Target =
    std::variant<bool *, int *, int64_t *, uint64_t *, double *, std::string *,
                 std::vector<std::string> *, OptionalText>;

/// Stands for a file named after the program, whose name the table cannot know.
constexpr char productsBesideProgram[] = "PROGRAM.products";

/// One row of the table.
struct Flag {
  bool basic; ///< shown by --help, not only by --help-all
  const char *name;
  const char *value; ///< the name of its value in --help; null: takes none
  const char *help;
  /// A function instead of an address, because the table is constant and the
  /// Arguments are made per call.
  Target (*target)(Arguments &);
  Status (*check)(const std::string &value) = nullptr;
};

/// All flags, in the order of --help.
std::span<const Flag> flagTable();

} // namespace fsdpc::runtime

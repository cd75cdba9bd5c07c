// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of flags (runtime/support/program_flags.def), and the checks of
// single values. A check says what would have been right, and CLI11 puts the
// flag's name in front. Conditions between two flags are in command_line.cpp.
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
  return commandLineError("'' is not a path");
}

Status interfaceName(const std::string &text) {
  if (!text.empty())
    return {};
  return commandLineError("'' is not the name of an interface");
}

// "FROM=TO"; which of several '=' is meant would be a guess.
Status prefixes(const std::string &text) {
  size_t equals = text.find('=');
  if (equals != std::string::npos && text.size() > 1 &&
      text.find('=', equals + 1) == std::string::npos)
    return {};
  return commandLineError(
      "'" + text +
      "' is not of the form FROM=TO, such as '=model.' for names that "
      "lack 'model.'");
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
  return commandLineError("'" + text +
                          "' is not a time such as 90s, 30m, 12h or 11:30:00");
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

Status reduceOrder(const std::string &text) {
  if (text == "ranks" || text == "fast")
    return {};
  return commandLineError("'" + text + "' is not one of ranks, fast");
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
#define ROW(basic, name, value, help, target, ...)                             \
  {basic, "--" name, value, help,                                              \
   [](Arguments &a) -> Target { return target; } __VA_OPT__(, ) __VA_ARGS__},
#define FLAG(...) ROW(false, __VA_ARGS__)
#define BASIC(...) ROW(true, __VA_ARGS__)
#include "runtime/support/program_flags.def"
};

} // namespace

std::span<const Flag> flagTable() { return flags; }

} // namespace fsdpc::runtime

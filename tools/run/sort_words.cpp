// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says for each word of `fsdpc run …` who reads it. Only the names of flags
// count, and whether a value follows; their readers check the values, and each
// has messages of its own.
#include "runtime/support/foreign_names.h"
#include "runtime/support/nearest.h"
#include "runtime/support/own_flags.h"
#include "tools/run/arguments.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace fsdpc::run {
namespace {

using Names = std::span<const std::string_view>;

bool isAmong(Names names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// The flags of this command (arguments.cpp). All take a value but --help.
constexpr std::string_view ownFlags[] = {
    "np",       "hosts", "restarts", "min-ranks",    "microbatches",
    "launcher", "rsh",   "cache",    "host-timeout", "help"};
constexpr std::string_view ownSwitches[] = {"help"};
// Flags of fsdpc itself, beyond the table of options, that only read.
constexpr std::string_view driverFlags[] = {"cuda-path", "profile"};
// Those that write files, which a program from the cache would not do.
constexpr std::string_view writingFlags[] = {
    "output",        "compile-to",     "dump-ir", "dump-full",
    "kernel-report", "schedule-table", "report",  "report-trace",
    "timing",        "quiet"};

// How a word of this command may be spelt, and what is read.
std::string spelled(const std::string &word) {
  for (const char *shorter : {"-np", "-n"}) {
    std::string text = shorter;
    if (word == text || word.starts_with(text + "="))
      return "--np" + word.substr(text.size());
  }
  return word == "-h" ? "--help" : word;
}

Error unknown(const std::string &flag, const std::string &name) {
  if (isAmong(writingFlags, name) || flag == "-o" || flag == "-q")
    return commandLineError("'" + flag +
                            "' is a flag of fsdpc alone; compile with 'fsdpc "
                            "MODEL -o PROGRAM', then 'fsdpc run PROGRAM'");
  std::vector<std::string> known;
  for (Names names : {Names(ownFlags), programFlags(), compilerFlags()})
    for (std::string_view each : names)
      known.push_back("--" + std::string(each));
  std::string advice = adviceOnFlag(flag);
  return commandLineError(
      "unknown flag '" + flag + "'" +
      (advice.empty() ? meant(flag, known) : "; " + advice) +
      " (see fsdpc run --help)");
}

} // namespace

Result<Words> sortWords(const std::vector<std::string> &given) {
  Words words;
  for (size_t i = 0; i < given.size(); ++i) {
    std::string word = spelled(given[i]);
    // torchrun's users write it; nothing changes after it here.
    if (word == "--")
      continue;
    if (word.empty() || word[0] != '-') {
      if (!words.target.empty())
        return commandLineError("unexpected argument '" + word +
                                "'; one program is run at a time, and '" +
                                words.target + "' is given");
      words.target = word;
      continue;
    }
    bool hasValue = word.find('=') != std::string::npos;
    std::string flag = word.substr(0, word.find('='));
    std::string name = flag.starts_with("--") ? flag.substr(2) : "";
    std::vector<std::string> *reader = nullptr;
    bool alone = hasValue;
    if (isAmong(ownFlags, name)) {
      reader = &words.own;
      alone |= isAmong(ownSwitches, name);
    } else if (isAmong(programFlags(), name)) {
      reader = &words.program;
      alone |= isAmong(programSwitches(), name);
    } else if (isAmong(compilerFlags(), name) || isAmong(driverFlags, name)) {
      reader = &words.compiler;
      alone |= isAmong(compilerSwitches(), name);
    } else {
      return unknown(flag, name);
    }
    reader->push_back(word);
    if (alone)
      continue;
    if (i + 1 == given.size())
      return commandLineError("'" + flag + "' needs a value");
    reader->push_back(given[++i]);
  }
  return words;
}

std::string valueOf(const std::vector<std::string> &words,
                    const std::string &flag) {
  std::string value;
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i].starts_with(flag + "="))
      value = words[i].substr(flag.size() + 1);
    else if (words[i] == flag && i + 1 < words.size())
      value = words[i + 1];
  return value;
}

std::vector<std::string> without(const std::vector<std::string> &words,
                                 const std::string &flag) {
  bool alone = flag.starts_with("--") &&
               isAmong(programSwitches(), std::string_view(flag).substr(2));
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == flag)
      i += !alone;
    else if (!words[i].starts_with(flag + "="))
      kept.push_back(words[i]);
  }
  return kept;
}

} // namespace fsdpc::run

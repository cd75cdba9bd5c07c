// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses the values of flags, strictly: "4x" is not 4 and "-1" is not a seed,
// since a run that reads a slip as another number would train the wrong thing.
// Each error names what would have been right.
#include "runtime/cli/flag_values.h"
#include "runtime/support/concat.h"
#include "runtime/support/nearest.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace fsdpc::runtime {
namespace {

// u64 is left out: a token is at most an i64 in the program.
const std::vector<std::string> widths = {"u8",  "u16", "u32", "i8",
                                         "i16", "i32", "i64"};

// Parses one value of --data or --tokens, or of the flag of an evaluation. Its
// input is one of `names`.
Result<DataSource> parseSource(const std::string &text, bool isTokens,
                               const std::string &flag,
                               const std::vector<std::string> &names) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size())
    return commandLineError(flag + ": '" + text + "' is not NAME=FILE");
  DataSource source;
  source.input = text.substr(0, equals);
  source.file = text.substr(equals + 1);
  source.tokens = isTokens;
  // A model whose loss needs no input has an empty list, from which no name
  // could be suggested.
  if (names.empty())
    return commandLineError(flag + ": there is no input '" + source.input +
                            "'; the loss depends on no input");
  if (std::find(names.begin(), names.end(), source.input) == names.end()) {
    std::string near = meant(source.input, names);
    return commandLineError(
        flag + ": there is no input '" + source.input + "'" +
        (near.empty() ? "; the inputs are " + listed(names) : near));
  }
  if (isTokens)
    parseTokens(text.substr(equals + 1), source);
  return source;
}

} // namespace

// The functions of the C library would skip leading spaces.
static bool beginsAsNumber(const std::string &text) {
  return !text.empty() && std::strchr("+-.0123456789", text[0]) != nullptr;
}

// errno is ERANGE for a number that does not fit.
bool parseInteger(const std::string &text, int64_t &value) {
  char *end;
  errno = 0;
  value = std::strtoll(text.c_str(), &end, 10);
  return beginsAsNumber(text) && end == text.c_str() + text.size() &&
         errno == 0;
}

// Refuses "inf", "nan" and what overflows; strtod accepts all three.
bool parseNumber(const std::string &text, double &value) {
  char *end;
  value = std::strtod(text.c_str(), &end);
  return beginsAsNumber(text) && end == text.c_str() + text.size() &&
         std::isfinite(value);
}

// A unit is required, since a plain number means minutes to Slurm and seconds
// to others.
bool parseDuration(const std::string &text, double &seconds) {
  if (text.find(':') == std::string::npos) {
    const std::pair<char, double> units[] = {{'s', 1}, {'m', 60}, {'h', 3600}};
    for (auto [unit, factor] : units)
      if (!text.empty() && text.back() == unit &&
          parseNumber(text.substr(0, text.size() - 1), seconds)) {
        seconds *= factor;
        return seconds >= 0 && std::isfinite(seconds);
      }
    return false;
  }
  int days = 0, hours, minutes, rest, end = 0;
  bool dated = text.find('-') != std::string::npos;
  if (dated ? std::sscanf(text.c_str(), "%4d-%2d:%2d:%2d%n", &days, &hours,
                          &minutes, &rest, &end) != 4
            : std::sscanf(text.c_str(), "%4d:%2d:%2d%n", &hours, &minutes,
                          &rest, &end) != 3)
    return false;
  seconds = ((days * 24. + hours) * 60 + minutes) * 60 + rest;
  return size_t(end) == text.size() && days >= 0 && hours >= 0 &&
         minutes >= 0 && minutes < 60 && rest >= 0 && rest < 60;
}

// Names the bound that was missed, the lower one if it is not a number at all.
Status checkInteger(const std::string &text, int64_t least, int64_t most) {
  int64_t value;
  bool parsed = parseInteger(text, value);
  if (parsed && value >= least && value <= most)
    return {};
  std::string range = parsed && value > most ? concat("of at most ", most)
                                             : concat("of at least ", least);
  return commandLineError("'" + text + "' is not a whole number " + range);
}

// "stop" ends the run at the first one, so it takes no number.
Result<NonFinitePolicy> parseNonFinite(const std::string &text) {
  NonFinitePolicy policy;
  size_t comma = text.find(',');
  std::string kind = text.substr(0, comma);
  if (kind == "skip")
    policy.kind = NonFinitePolicy::skip;
  else if (kind == "rollback")
    policy.kind = NonFinitePolicy::rollback;
  else if (kind != "stop")
    return commandLineError("'" + kind +
                            "' is not one of stop, skip, rollback");
  if (comma == std::string::npos)
    return policy;
  const std::string key = "times=", rest = text.substr(comma + 1);
  if (rest.rfind(key, 0) != 0 || policy.kind == NonFinitePolicy::stop)
    return commandLineError("'" + text +
                            "' is not like skip,times=10 or rollback,times=3");
  FSDPC_TRY(checkInteger(rest.substr(key.size()), 1, 1 << 20));
  parseInteger(rest.substr(key.size()), policy.times);
  return policy;
}

// They need not add up to 1.
Result<std::vector<double>> parseWeights(const std::string &text) {
  std::vector<double> weights;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    double weight;
    if (!parseNumber(text.substr(begin, end - begin), weight) || weight <= 0)
      return commandLineError("'" + text.substr(begin, end - begin) +
                              "' is not a weight above 0, as in 0.7,0.3");
    weights.push_back(weight);
    begin = end + 1;
  }
  if (weights.size() < 2)
    return commandLineError("'" + text +
                            "' is one weight; a mixture has two or more");
  return weights;
}

Status checkAtLeastZero(const std::string &text) {
  double value;
  if (parseNumber(text, value) && value >= 0)
    return {};
  return commandLineError("'" + text + "' is not a number of at least 0");
}

Status checkAboveZero(const std::string &text) {
  double value;
  if (parseNumber(text, value) && value > 0)
    return {};
  return commandLineError("'" + text + "' is not a number above 0");
}

// The check comes before CLI11's own conversion to uint64.
Status checkSeed(const std::string &text) {
  bool digits = !text.empty() &&
                text.find_first_not_of("0123456789") == std::string::npos;
  errno = 0;
  std::strtoull(text.c_str(), nullptr, 10);
  if (digits && errno == 0)
    return {};
  return commandLineError("'" + text +
                          "' is not a whole number from 0 to 2^64 - 1");
}

// A suffix counts only if it has the right form, so that most names work
// unquoted.
void parseTokens(const std::string &text, DataSource &source) {
  source.file = text;
  // From the right: first the shift, then the width in what is left.
  size_t plus = source.file.rfind('+');
  int64_t shift;
  if (plus != std::string::npos && plus + 1 < source.file.size() &&
      source.file.find_first_not_of("0123456789", plus + 1) ==
          std::string::npos &&
      parseInteger(source.file.substr(plus + 1), shift)) {
    source.shift = shift;
    source.file.resize(plus);
  }
  size_t colon = source.file.rfind(':');
  if (colon == std::string::npos)
    return;
  std::string width = source.file.substr(colon + 1);
  if (std::find(widths.begin(), widths.end(), width) != widths.end()) {
    source.width = width;
    source.file.resize(colon);
  }
}

// Each input needs exactly one source; the error for a missing one shows both
// ways to give it.
Result<std::vector<DataSource>>
assignData(const std::vector<std::string> &data,
           const std::vector<std::string> &tokens, const Manifest &manifest,
           const DataFlags &flags) {
  std::vector<std::string> names;
  for (const Input &input : manifest.inputs)
    names.push_back(input.name);
  // sources[i] belongs to input i. An empty `input` means not given yet.
  std::vector<DataSource> sources(names.size());
  for (size_t i = 0; i < data.size() + tokens.size(); ++i) {
    bool isTokens = i >= data.size();
    const std::string &flag = isTokens ? flags.tokens : flags.data;
    Result<DataSource> source = parseSource(
        isTokens ? tokens[i - data.size()] : data[i], isTokens, flag, names);
    FSDPC_TRY(source);
    auto found = std::find(names.begin(), names.end(), source->input);
    DataSource &own = sources[size_t(found - names.begin())];
    // --data and --tokens for the same input count as twice, too.
    if (!own.input.empty())
      return commandLineError(flag + ": input '" + source->input +
                              "' is given twice");
    own = std::move(*source);
  }
  for (size_t i = 0; i < names.size(); ++i)
    if (sources[i].input.empty())
      return commandLineError("input '" + names[i] + "' has no data: give " +
                              flags.data + " " + names[i] + "=FILE.npy or " +
                              flags.tokens + " " + names[i] + "=FILE:u8");
  return sources;
}

} // namespace fsdpc::runtime

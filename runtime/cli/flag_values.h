// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The values of flags as text: numbers, and samples of a file. All of a
// number's text must be the number.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/cli/command_line.h"
#include "runtime/support/status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// These return false if any character of the text is not part of the number,
/// and may have written to `value` then.
bool parseInteger(const std::string &text, int64_t &value);
bool parseNumber(const std::string &text, double &value);
/// "90s", "30m", "12h", or "[D-]HH:MM:SS" as Slurm writes times; in seconds.
bool parseDuration(const std::string &text, double &seconds);

/// Parses "stop", "skip" or "rollback", the latter two perhaps with
/// ",times=R".
Result<NonFinitePolicy> parseNonFinite(const std::string &text);

/// These check the text of a flag's value.
Status checkInteger(const std::string &text, int64_t least, int64_t most);
/// Parses weights between commas: two or more, each above zero.
Result<std::vector<double>> parseWeights(const std::string &text);
Status checkAtLeastZero(const std::string &text);
Status checkAboveZero(const std::string &text);
/// Accepts the whole range of uint64. A sign is an error, where strtoull would
/// wrap around.
Status checkSeed(const std::string &text);

/// The names of the flags that give samples and token streams.
struct DataFlags {
  std::string data, tokens;
};

/// Returns the source of each input, in the manifest's order. Fails if an input
/// has none or two. `data` and `tokens` are the values of the two flags.
Result<std::vector<DataSource>>
assignData(const std::vector<std::string> &data,
           const std::vector<std::string> &tokens, const Manifest &manifest,
           const DataFlags &flags);

} // namespace fsdpc::runtime

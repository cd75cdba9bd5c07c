// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of `fsdpc run`. Its own flags, those of the compiler and
// those of the program may come in any order: the names say whose they are.
#pragma once

#include "runtime/support/status.h"
#include "tools/completion/completion.h"
#include "tools/run/hosts.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::run {

/// The words of a command line by their readers, as they were given.
struct Words {
  std::vector<std::string> own, compiler, program;
  std::string target; ///< the model or the program; empty: not given
};

/// Sorts the words after "run". A flag that compiler and program both have
/// goes to the program, whose value counts. Fails for a flag that nobody has.
Result<Words> sortWords(const std::vector<std::string> &words);

struct Arguments {
  std::string target;                ///< a model, or a compiled program
  std::vector<std::string> compiler; ///< flags of the compile
  std::vector<std::string> program;  ///< flags of the program
  int64_t ranks = 0;                 ///< 0: as many as the hosts have slots
  std::vector<Host> hosts;           ///< empty: this one
  int64_t restarts = 0;              ///< in a row without a new checkpoint
  int64_t minRanks = 0;              ///< 0: all of them
  int64_t microbatches = 0;          ///< of a step over all ranks; 0: not fixed
  double hostSeconds = 300;          ///< to wait for hosts that do not answer
  std::string launcher = "auto";
  std::string agent = "ssh"; ///< the remote shell
  std::string cache;         ///< a folder; "none"; empty: the default
  std::string checkpoint;    ///< the program's folder; empty: none
  int64_t shardGroup = 1;    ///< divides the number of ranks

  /// Returns true if the target has to be compiled.
  bool isModel() const;
};

/// Describes the command for `fsdpc completion`, with its own flags.
completion::Command describeRun();

/// Parses the words after "run". Prints --help itself, with `code` 0.
Result<Arguments> parseArguments(const std::vector<std::string> &words,
                                 bool &helped);

/// Returns the value of the last such flag, "--name value" or "--name=value";
/// "" if there is none.
std::string valueOf(const std::vector<std::string> &words,
                    const std::string &flag);
/// Returns the words without such a flag and its value.
std::vector<std::string> without(const std::vector<std::string> &words,
                                 const std::string &flag);

} // namespace fsdpc::run

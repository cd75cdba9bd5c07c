// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The subcommands of `fsdpc ckpt`. Each prints its result to stdout and errors
// as one line to stderr, and returns the exit code.
#pragma once

#include "runtime/support/status.h"
#include "tools/completion/completion.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc::ckpt {

/// The arguments of all subcommands; each reads its own.
/// input: DIR, a checkpoint or a folder of them. other: B of `diff`. output:
/// -o.
struct Arguments {
  std::string input, other, output;
  std::optional<int64_t> step;
  bool json = false;
  int64_t ranks = 1;               ///< reshard, convert
  std::optional<int64_t> samples;  ///< convert --from
  std::vector<std::string> rename; ///< consolidate: rules of runtime::Renaming
  uint64_t mostShard = 0;          ///< consolidate: bytes per file, 0: one file
  double absolute = 0, relative = 0; ///< diff: tolerances
  bool states = false;               ///< diff: also optimizer states
  std::string from, to;              ///< convert: a format
  std::string python;                ///< convert
  std::string script;                ///< convert: the part that needs torch
};

/// Each is one subcommand: see its file and `fsdpc ckpt NAME --help`. Returns
/// the exit code.
int inspect(const Arguments &arguments);
int verify(const Arguments &arguments);
int diff(const Arguments &arguments);
int consolidate(const Arguments &arguments);
int reshard(const Arguments &arguments);
int convert(const Arguments &arguments);

/// Prints "error: …" and returns the error's code.
int report(const Error &error);
/// Prints text for a terminal to stdout. Returns `code`, or that of an error,
/// as on a full disk.
int print(const std::string &text, ExitCode code = ExitCode::success);
/// The same for JSON, whose names stay whole: it escapes them by its own rules.
int printJson(const std::string &json, ExitCode code = ExitCode::success);

/// Describes the command and its subcommands for `fsdpc completion`.
std::vector<completion::Command> describeCkpt();

/// Reads the command line `ckpt SUBCOMMAND …`, of which argv[0] is "ckpt", and
/// runs the subcommand.
int runCkpt(int argc, char **argv);

} // namespace fsdpc::ckpt

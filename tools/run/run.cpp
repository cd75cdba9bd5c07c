// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See run.h.
#include "tools/run/run.h"

#include "runtime/support/diagnostics.h"
#include "tools/run/arguments.h"
#include "tools/run/job.h"
#include "tools/run/program_cache.h"

namespace fsdpc::run {

static Result<int> run(const std::vector<std::string> &words) {
  bool helped = false;
  Result<Arguments> arguments = parseArguments(words, helped);
  FSDPC_TRY(arguments);
  if (helped)
    return 0;
  int code = 0;
  Result<Program> program = findProgramOf(*arguments, code);
  FSDPC_TRY(program);
  if (code != 0)
    return code;
  if (!program->temporary.empty() && !arguments->hosts.empty())
    return inputError("'" + program->path +
                      "' is a temporary file, which other hosts do not see; "
                      "give --cache a folder that all hosts have");
  return runJob(*arguments, program->path);
}

int runCommand(int argc, char **argv) {
  Result<int> code = run(std::vector<std::string>(argv + 1, argv + argc));
  return code ? *code : int(runtime::printError(code.error()));
}

} // namespace fsdpc::run

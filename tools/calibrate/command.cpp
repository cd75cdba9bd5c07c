// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The script does the work: it compiles and runs programs as a user would. It
// lies beside the runtime's library, in ../lib from the compiler's own folder.
#include "tools/calibrate/command.h"

#include "runtime/support/diagnostics.h"
#include "runtime/support/installation.h"
#include "runtime/support/programs.h"

#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

int fsdpc::calibrate::runCalibrate(int argc, char **argv) {
  if (Status there = checkParts("lib/calibrate"); !there)
    return int(runtime::printError(there.error()));
  std::filesystem::path self = ownProgram();
  std::vector<std::string> words = {
      "python3",
      (self.parent_path() / "../lib/calibrate/calibrate.py").string(),
      "--fsdpc", self.string()};
  words.insert(words.end(), argv + 1, argv + argc);
  Error failure = replaceProcess(std::move(words));
  std::fprintf(stderr, "error: %s; calibrate needs it\n",
               failure.message.c_str());
  return int(failure.code());
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The script does the work: it compiles and runs programs as a user would. It
// lies beside the runtime's library, in ../lib from the compiler's own folder.
#include "tools/calibrate/command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

int fsdpc::calibrate::runCalibrate(int argc, char **argv) {
  std::error_code error;
  std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> words = {
      "python3",
      (self.parent_path() / "../lib/calibrate/calibrate.py").string(),
      "--fsdpc", self.string()};
  words.insert(words.end(), argv + 1, argv + argc);
  std::vector<char *> pointers;
  for (std::string &word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  std::fprintf(stderr, "error: cannot run 'python3': %s; calibrate needs it\n",
               std::strerror(errno));
  return 1;
}

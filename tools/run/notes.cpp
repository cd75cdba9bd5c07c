// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tools/run/notes.h"

#include <unistd.h>

namespace fsdpc::run {

void note(const std::string &text) {
  std::string line = "fsdpc run: " + text + "\n";
  [[maybe_unused]] ssize_t written =
      write(STDERR_FILENO, line.data(), line.size());
}

} // namespace fsdpc::run

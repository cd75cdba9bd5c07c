// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/support/diagnostics.h"

#include <unistd.h>

namespace fsdpc::runtime {

// In a single write, so that lines of several ranks do not mix.
static void printLine(const std::string &line) {
  std::string text = line + "\n";
  if (write(STDERR_FILENO, text.data(), text.size()) < 0)
    return; // no other place to report it
}

void printError(const std::string &message) { printLine("error: " + message); }

void printWarning(const std::string &message) {
  printLine("warning: " + message);
}

} // namespace fsdpc::runtime

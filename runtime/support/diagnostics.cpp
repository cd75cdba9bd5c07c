// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/support/diagnostics.h"
#include "runtime/support/spelling.h"

#include <csignal>
#include <exception>
#include <new>
#include <unistd.h>

namespace fsdpc::runtime {

// In a single write, so that lines of several ranks do not mix.
static void printLine(const std::string &line) {
  std::string text = printable(line) + "\n";
  if (write(STDERR_FILENO, text.data(), text.size()) < 0)
    return; // no other place to report it
}

ExitCode printError(const Error &error) {
  if (!error.message.empty())
    printLine("error: " + error.message);
  return error.code();
}

void printWarning(const std::string &message) {
  printLine("warning: " + message);
}

int guarded(const std::function<int()> &body) {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return int(printError(runError("out of memory")));
  } catch (const std::exception &fault) {
    return int(printError(runError(fault.what())));
  }
}

void outliveReaders() { std::signal(SIGPIPE, SIG_IGN); }

} // namespace fsdpc::runtime

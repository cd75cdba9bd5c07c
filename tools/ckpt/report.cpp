// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/support/diagnostics.h"
#include "runtime/support/spelling.h"
#include "tools/ckpt/commands.h"

#include <cstdio>

namespace fsdpc::ckpt {

// Every subcommand ends through report() or print(), so an error goes to stderr
// as one line and a full disk does not look like success.
int report(const Error &error) { return int(runtime::printError(error)); }

int print(const std::string &text, ExitCode code) {
  return printJson(runtime::printableLines(text), code);
}

int printJson(const std::string &text, ExitCode code) {
  size_t wrote = std::fwrite(text.data(), 1, text.size(), stdout);
  if (wrote == text.size() && std::fflush(stdout) == 0)
    return int(code);
  return report(runError("cannot write to stdout"));
}

} // namespace fsdpc::ckpt

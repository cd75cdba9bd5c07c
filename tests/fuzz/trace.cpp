// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes traces (--profile, --report-trace): a text is refused with one line,
// or its commands have times.
#include "compiler/schedule/trace.h"
#include "tests/fuzz/input.h"

#include <cmath>

using namespace fsdpc;
using namespace fsdpc::schedule;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto trace = parseTrace({reinterpret_cast<const char *>(data), size});
  if (!trace) {
    fuzz::demandOneLine(trace.error().message);
    return 0;
  }
  size_t named = 0;
  for (auto &[microbatch, commands] : trace->microbatches())
    named += commands.size();
  fuzz::demand(named <= trace->commands.size(), "a command is in one list");
  for (const TracedCommand &command : trace->commands)
    fuzz::demand(std::isfinite(command.beginUs) && command.us >= 0,
                 "a command has a time");
  return 0;
}

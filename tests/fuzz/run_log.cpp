// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes logs of runs, as fsdpc top reads them: in two parts, as a run that is
// still writing leaves them. A log is refused with one line, or its curves
// have numbers.
#include "tools/top/run_log.h"
#include "tests/fuzz/input.h"

#include <algorithm>

using namespace fsdpc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz::MemoryFile file;
  std::string path = file.write(data, size / 2);
  top::RunLog log(path);
  for (size_t part : {size / 2, size}) {
    file.write(data, part);
    if (Status updated = log.update(); !updated) {
      fuzz::demandOneLine(updated.error().message);
      continue;
    }
    fuzz::demand(log.done() >= 0 && log.ranks() >= 0,
                 "counts are not negative");
    fuzz::demand(log.curve("loss").size() <= size, "steps have bytes");
    log.rateKey();
    log.newest("grad_norm");
  }
  return 0;
}

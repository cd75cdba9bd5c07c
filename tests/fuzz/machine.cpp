// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes machine files (--machine): a text is refused with one line, or its
// costs are numbers.
#include "compiler/schedule/machine.h"
#include "compiler/schedule/cost_model.h"
#include "tests/fuzz/input.h"

#include <cmath>

using namespace fsdpc;
using namespace fsdpc::schedule;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto machine = machineFromJson({reinterpret_cast<const char *>(data), size});
  if (!machine) {
    fuzz::demandOneLine(machine.error().message);
    return 0;
  }
  for (double bytes : {0.0, 1.0, 1e12})
    fuzz::demand(std::isfinite(offloadUs(*machine, bytes, bytes)),
                 "a cost is a number");
  return 0;
}

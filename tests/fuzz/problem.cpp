// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes scheduling problems in JSON: a text is refused with one line, or it is
// a well-formed problem that survives writing and reading.
#include "compiler/schedule/problem_json.h"
#include "tests/fuzz/input.h"

using namespace fsdpc;
using namespace fsdpc::schedule;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto problem = problemFromJson({reinterpret_cast<const char *>(data), size});
  if (!problem) {
    fuzz::demandOneLine(problem.error().message);
    return 0;
  }
  fuzz::demand(problem->check().empty(), "a problem is well-formed");
  std::string text = toJson(*problem);
  auto again = problemFromJson(text);
  fuzz::demand(bool(again), "a problem that was written can be read");
  fuzz::demand(toJson(*again) == text, "reading changes nothing");
  return 0;
}

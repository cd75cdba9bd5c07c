// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes tables of schedules (--schedule, fsdpc diff): a text is refused with
// one line, or it is a schedule of the problem that survives writing and
// reading.
#include "compiler/schedule/table.h"
#include "compiler/schedule/table_diff.h"
#include "tests/compiler/schedule/schedule_fixtures.h"
#include "tests/fuzz/input.h"

using namespace fsdpc;
using namespace fsdpc::schedule;

namespace {

// Two units, with the labels that a table knows.
Problem makeProblem() {
  Problem problem = training(/*units=*/2, /*opsPerPass=*/2, /*opUs=*/10,
                             /*gatherUs=*/15);
  for (Collective &collective : problem.collectives) {
    bool isGather = collective.kind == CollectiveKind::Gather;
    std::string name = collective.label.substr(collective.label.rfind(' ') + 1);
    collective.label =
        (isGather ? "all_gather of " : "reduce_scatter of ") + name;
  }
  return problem;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const Problem problem = makeProblem();
  std::string_view text(reinterpret_cast<const char *>(data), size);
  if (auto schedule = readTable(problem, text)) {
    std::string written = writeTable(problem, *schedule);
    auto again = readTable(problem, written);
    fuzz::demand(bool(again), "a table that was written can be read");
    fuzz::demand(again->actions == schedule->actions,
                 "reading changes nothing");
  } else {
    fuzz::demandOneLine(schedule.error().message);
  }
  size_t half = text.find('\0');
  if (half == std::string_view::npos)
    half = size / 2;
  auto difference =
      diffTables(text.substr(0, half), "a", text.substr(half), "b");
  if (!difference)
    fuzz::demandOneLine(difference.error().message);
  return 0;
}

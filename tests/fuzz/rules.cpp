// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes the small languages of flags: learning rate schedules, init rules, and
// the values of --tokens.
#include "runtime/cli/command_line.h"
#include "runtime/cli/lr_schedule.h"
#include "runtime/numeric/init_values.h"
#include "tests/fuzz/input.h"

#include <cmath>

using namespace fsdpc;
using namespace fsdpc::runtime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(data, data + size);
  if (auto schedule = parseSchedule(text))
    for (int64_t step : {int64_t(0), int64_t(1), int64_t(999)})
      fuzz::demand(schedule->at(step, 1000, 0.1) >= 0,
                   "rates are not negative");
  const std::vector<int64_t> shape = {4, 6};
  if (auto rule = parseInitRule(text)) {
    auto shaped = ruleForShape(*rule, shape);
    // Elements 5 to 13, as a shard that does not begin at 0.
    float values[9];
    if (shaped && shaped->kind == InitRule::orthogonal)
      orthogonalValues(*shaped, "name", 3, shape);
    else if (shaped)
      applyInitRule(*shaped, "name", 3, 5, 9, values);
  }
  DataSource source;
  parseTokens(text, source);
  fuzz::demand(source.shift >= 0 && source.file.size() <= size,
               "a shift is not negative");
  return 0;
}

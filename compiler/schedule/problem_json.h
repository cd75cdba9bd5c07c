// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Problems as JSON, so that schedules of real models can be studied and tested
// without the models.
#pragma once

#include "compiler/schedule/problem.h"
#include "runtime/support/status.h"

#include <string>
#include <string_view>

namespace fsdpc::schedule {

/// Returns the problem without its options. Durations are rounded to
/// nanoseconds.
std::string toJson(const Problem &problem);

/// Reads what `toJson` wrote. The problem passes `check()`.
Result<Problem> problemFromJson(std::string_view text);

} // namespace fsdpc::schedule

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A lower bound that no schedule can improve on.
#pragma once

#include "compiler/schedule/problem.h"

namespace fsdpc::schedule {

/// Returns a lower bound, in µs, of what every schedule that keeps the
/// problem's memory limit takes beyond its ops: stalls, and by how much
/// collectives slow ops down. Tables and reports print it beside a schedule's
/// own time, so a reader sees how much another schedule could still gain. The
/// bound on live gathers is not used.
double leastLostUs(const Problem &problem);

} // namespace fsdpc::schedule

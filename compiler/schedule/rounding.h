// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rounds times for dumps, tables of problems and predictions.
#pragma once

#include <cmath>

namespace fsdpc::schedule {

/// Returns the time in thousandths of a µs. The cost model is not more precise,
/// and shorter numbers keep dumps readable.
inline double roundedUs(double us) { return std::round(us * 1000) / 1000; }

} // namespace fsdpc::schedule

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Combining the values of all ranks in rank order, for the collectives on typed
// values (runtime/comm/collectives.h says what each type and reduction means).
#pragma once

#include <cstdint>

namespace fsdpc::runtime {

enum class ValueType { f32, bf16, f16, i32, i64 };
enum class Reduction { sum, prod, min, max, avg };

/// Writes to result[i] the values[rank][i] of all ranks, combined. `result` may
/// be one of the sources.
void foldRanks(const void *const *values, int ranks, int64_t count,
               ValueType type, Reduction reduction, void *result);

} // namespace fsdpc::runtime

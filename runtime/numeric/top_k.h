// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the largest elements of a gradient (runtime/abi/top_k.h). All host
// backends share this choice.
#pragma once

#include "runtime/abi/top_k.h"

#include <cstdint>

namespace fsdpc::runtime {

/// Writes the places and values of the `count` largest of `elements` values by
/// magnitude, in the order of places, and replaces these values by zero. Of
/// equal magnitudes the lower places come first; NaN is larger than all
/// numbers.
void takeLargest(float *values, int64_t elements, int64_t count,
                 ChosenElement *chosen);

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order of f32 by magnitude, for the largest of many values.
#pragma once

#include "runtime/numeric/bfloat16.h"

namespace fsdpc::runtime {

/// Magnitudes compare as the integers of their bits, with NaN above infinity.
FSDPC_SHARED inline uint32_t magnitudeOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits & 0x7fffffff;
}

} // namespace fsdpc::runtime

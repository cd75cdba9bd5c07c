// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// bf16 outside of libraries: widening to f32, and rounding to nearest, ties to
// even. Free of branches, so that loops over it vectorise. The runtime's own
// CUDA kernels compile the same functions.
#pragma once

#include <cstdint>
#include <cstring>

// Marks functions that the host and the runtime's own CUDA kernels both call.
#ifdef __CUDACC__
#define FSDPC_SHARED __host__ __device__
#else
#define FSDPC_SHARED
#endif

namespace fsdpc::runtime {

/// The upper half of an f32.
struct BFloat16 {
  uint16_t bits;
};

/// Returns the value as f32, exactly. The overload for f32 lets templates over
/// the element type call it always.
FSDPC_SHARED inline float widen(float value) { return value; }

FSDPC_SHARED inline float widen(BFloat16 value) {
  uint32_t bits = uint32_t(value.bits) << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

/// Rounds an f32 to T, so that templates over the element type can always call
/// it.
template <typename T> FSDPC_SHARED T narrow(float value);

template <> FSDPC_SHARED inline float narrow<float>(float value) {
  return value;
}

template <> FSDPC_SHARED inline BFloat16 narrow<BFloat16>(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  // Rounding could turn a NaN into infinity: keep it, as a quiet NaN.
  uint32_t quiet = (bits >> 16) | 0x40;
  bool isNan = (bits & 0x7fffffff) > 0x7f800000;
  return {uint16_t(isNan ? quiet : rounded)};
}

} // namespace fsdpc::runtime

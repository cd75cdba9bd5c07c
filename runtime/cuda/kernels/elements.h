// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elements of a type that is known when a kernel runs: they are read as f32,
// and rounded when they are written.
#pragma once

#include "runtime/numeric/float16.h"
#include "runtime/numeric/wire_type.h"

namespace fsdpc::runtime {

/// Both address elements, not bytes.
FSDPC_SHARED inline float load(const void *from, WireType type, int64_t i) {
  switch (type) {
  case WireType::bf16:
    return widen(static_cast<const BFloat16 *>(from)[i]);
  case WireType::f16:
    return widen(static_cast<const Float16 *>(from)[i]);
  default:
    return static_cast<const float *>(from)[i];
  }
}

FSDPC_SHARED inline void store(void *to, WireType type, int64_t i,
                               float value) {
  switch (type) {
  case WireType::bf16:
    static_cast<BFloat16 *>(to)[i] = narrow<BFloat16>(value);
    break;
  case WireType::f16:
    static_cast<Float16 *>(to)[i] = narrow<Float16>(value);
    break;
  default:
    static_cast<float *>(to)[i] = value;
  }
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes elements whose type is known by name, as plans name it. The
// emulated libraries compute with these: one branch per element is slow, but
// one body then serves all types, and the emulation is there to be checked by
// eye.
#pragma once

#include "runtime/cuda/kernels/elements.h"
#include "runtime/numeric/float16.h"
#include "runtime/numeric/reduce.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::runtime::emulation {

/// Returns the address of an element.
inline const void *at(const void *base, const std::string &dtype,
                      int64_t element) {
  return static_cast<const char *>(base) + element * dtypeBytes(dtype);
}
inline void *at(void *base, const std::string &dtype, int64_t element) {
  return static_cast<char *>(base) + element * dtypeBytes(dtype);
}

/// Read and write one element of "f32", "bf16" or "f16". Writing rounds to
/// nearest, ties to even.
inline float loadValue(const void *base, const std::string &dtype,
                       int64_t element) {
  return load(base, wireType(dtype), element);
}
inline void storeValue(float value, void *base, const std::string &dtype,
                       int64_t element) {
  store(base, wireType(dtype), element, value);
}

/// Widens `count` adjacent elements; storeValues rounds them back.
inline std::vector<float> loadValues(const void *base, const std::string &dtype,
                                     int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = loadValue(base, dtype, i);
  return values;
}
inline void storeValues(const std::vector<float> &values,
                        const std::string &dtype, void *base) {
  for (size_t i = 0; i < values.size(); ++i)
    storeValue(values[i], base, dtype, int64_t(i));
}

/// Returns the value rounded to `dtype`.
inline float rounded(float value, const std::string &dtype) {
  return dtype == "bf16"  ? widen(narrow<BFloat16>(value))
         : dtype == "f16" ? widen(narrow<Float16>(value))
                          : value;
}

} // namespace fsdpc::runtime::emulation

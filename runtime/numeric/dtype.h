// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element types by the names in the manifest ("f32", "bf16", "i64", "u8", …),
// and the conversions that data and weight files need on their way into memory.
// The kernels never call these; they convert in compiled code.
#pragma once

#include <cstdint>
#include <string>

namespace fsdpc::runtime {

bool isFloat(const std::string &dtype);
bool isInteger(const std::string &dtype); ///< i8 … u64, not i1

/// Rounds to nearest, ties to even. A NaN stays a NaN.
uint16_t toBf16(float value);
float fromBf16(uint16_t bits);
float fromF16(uint16_t bits);

/// Returns true if reading may convert `from` to `to` without being asked:
/// integers widen, floats become f32 (f64 is rounded), equal types are copied.
bool converts(const std::string &from, const std::string &to);
/// Converts `count` elements. Requires that converts(from, to) holds or that
/// `to` is "f32" or "f64".
void convert(const void *source, const std::string &from, void *destination,
             const std::string &to, int64_t count);

} // namespace fsdpc::runtime

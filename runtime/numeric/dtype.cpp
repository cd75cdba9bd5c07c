// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions between element types, as templates over one C++ type per dtype.
// Written for correctness, not speed: data is converted once, when it is read,
// and reading the file takes longer.
#include "runtime/numeric/dtype.h"
#include "runtime/abi/memory_plan.h"

#include <cmath>
#include <cstring>

namespace fsdpc::runtime {
namespace {

// Types that C++ lacks. Each converts to float, which is all that reading
// needs.
struct Bf16 {
  uint16_t bits;
  operator float() const { return fromBf16(bits); }
};
struct F16 {
  uint16_t bits;
  operator float() const { return fromF16(bits); }
};

// Calls `body` with a null pointer to the C++ type that holds `dtype`; a
// pointer, since it carries the type without a value. Calls nothing for an
// unknown name: manifests and file headers are checked when they are read.
template <class Body> void withType(const std::string &dtype, Body body) {
  if (dtype == "f32")
    body((float *)nullptr);
  else if (dtype == "f64")
    body((double *)nullptr);
  else if (dtype == "bf16")
    body((Bf16 *)nullptr);
  else if (dtype == "f16")
    body((F16 *)nullptr);
  else if (dtype == "i8")
    body((int8_t *)nullptr);
  else if (dtype == "i16")
    body((int16_t *)nullptr);
  else if (dtype == "i32")
    body((int32_t *)nullptr);
  else if (dtype == "i64")
    body((int64_t *)nullptr);
  // A boolean is one byte, 0 or 1.
  else if (dtype == "u8" || dtype == "i1")
    body((uint8_t *)nullptr);
  else if (dtype == "u16")
    body((uint16_t *)nullptr);
  else if (dtype == "u32")
    body((uint32_t *)nullptr);
  else if (dtype == "u64")
    body((uint64_t *)nullptr);
}

// Elements may lie at any byte of a file, so they are copied, not cast.
template <class To, class From>
void convertAll(const char *source, char *destination, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, source + i * sizeof(From), sizeof(From));
    To to = static_cast<To>(from);
    std::memcpy(destination + i * sizeof(To), &to, sizeof(To));
  }
}

} // namespace

bool isFloat(const std::string &dtype) {
  return dtype == "f32" || dtype == "f64" || dtype == "f16" || dtype == "bf16";
}

bool isInteger(const std::string &dtype) {
  return !isFloat(dtype) && dtype != "i1" && dtypeBytes(dtype) > 0;
}

// Adds just under half of the last kept bit, plus one if that bit is set: ties
// then go to even.
uint16_t toBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  // A quiet NaN: the whole payload may be in the half that is cut off.
  if (std::isnan(value))
    return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// A bf16 is the upper half of an f32.
float fromBf16(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

// Exact, since every f16 value is an f32 value.
float fromF16(uint16_t bits) {
  // 5 bits of exponent with a bias of 15, and 10 of fraction. The cases are
  // infinity or NaN, normal numbers, and subnormal ones.
  int exponent = bits >> 10 & 31;
  float fraction = float(bits & 1023);
  float magnitude;
  if (exponent == 31)
    magnitude = fraction ? NAN : INFINITY;
  else if (exponent)
    magnitude = std::ldexp(fraction + 1024, exponent - 25);
  else
    magnitude = std::ldexp(fraction, -24);
  return bits >> 15 ? -magnitude : magnitude;
}

// Integers may widen, except from signed to unsigned.
bool converts(const std::string &from, const std::string &to) {
  if (from == to)
    return true;
  if (isFloat(from) && to == "f32")
    return true;
  if (!isInteger(from) || !isInteger(to))
    return false;
  bool narrower = dtypeBytes(from) < dtypeBytes(to);
  // Widening keeps every value only if the sign fits: u8 goes to i16, i8 never
  // to u16.
  return narrower && (from[0] == 'u' || to[0] == 'i');
}

// Equal types are copied. All others go to f32 or f64, or from integer to
// integer; the `if constexpr` keep the remaining pairs from being compiled.
void convert(const void *source, const std::string &from, void *destination,
             const std::string &to, int64_t count) {
  auto *in = static_cast<const char *>(source);
  auto *out = static_cast<char *>(destination);
  if (from == to) {
    std::memcpy(out, in, size_t(count * dtypeBytes(to)));
    return;
  }
  withType(from, [&](auto *type) {
    using From = std::remove_pointer_t<decltype(type)>;
    if (to == "f32")
      convertAll<float, From>(in, out, count);
    else if (to == "f64")
      convertAll<double, From>(in, out, count);
    else if constexpr (std::is_integral_v<From>)
      withType(to, [&](auto *target) {
        using To = std::remove_pointer_t<decltype(target)>;
        if constexpr (std::is_integral_v<To>)
          convertAll<To, From>(in, out, count);
      });
  });
}

} // namespace fsdpc::runtime

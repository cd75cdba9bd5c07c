// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of squares for the gradient's norm, and of other numbers that are not
// negative for optimizers (fsdp.member_sums, fsdp.factor_sums). Their bits do
// not depend on the order of addition: neither ranks, strategies and layouts
// nor threads change them.
//
// Elements are squared and added in f64 in groups of 16, in a fixed order. A
// member begins at a multiple of 16 elements and a shard ends at one, so a
// group lies on one rank, whatever their number. The groups' sums are then
// added exactly, as numbers of fixed point: 16 digits of 32 bits, from 2^-240
// on (Kulisch's accumulator, shortened). The bits of a group's sum below
// 2^-240, which come from elements below 1e-36, are cut off.
//
// Host and CUDA kernels compile the same functions.
#pragma once

#include "runtime/abi/norm_digits.h"
#include "runtime/numeric/bfloat16.h"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace fsdpc::runtime {

constexpr int squareGroup = 16; ///< elements

/// Sums the squares of one group. A square of an f32 is exact in f64, so a
/// fused multiply-add has the same bits. T is f32 or a 16-bit type, which
/// widens exactly.
template <typename T> FSDPC_SHARED double squaresOfGroup(const T *values) {
  double lanes[4];
  for (int i = 0; i < 4; ++i) {
    double a = widen(values[i]), b = widen(values[i + 4]),
           c = widen(values[i + 8]), d = widen(values[i + 12]);
    lanes[i] = (a * a + c * c) + (b * b + d * d);
  }
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

/// A sum of group sums. The value is Σ digit[i] · 2^(32 i - 240).
struct SquareSum {
  /// Additions that a digit takes before it must be carried.
  static constexpr int64_t mostAdditions = 1024;
  /// The exponent field of f64 from 2^260 on. A group of squares of f32 has no
  /// larger one. The last digit then holds 2^21 at most, so that f64 adds those
  /// of 2^32 numbers without rounding.
  static constexpr uint64_t largestExponent = 1023 + 260;

  uint64_t digit[normDigits] = {};
  double notFinite = 0; ///< the sum of infinities and NaNs

  /// Adds a number. One with a minus sign counts as infinite, as does one of
  /// 2^261 or more: sums of squares have neither.
  FSDPC_SHARED void add(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (bits >> 52 > largestExponent) { // with the sign
      if (value == 0)                   // -0, which a sum of no squares may be
        return;
      notFinite += std::isfinite(value) ? HUGE_VAL : value;
      return;
    }
    int exponent = int(bits >> 52);
    uint64_t mantissa = (bits & ((uint64_t(1) << 52) - 1)) | uint64_t(1) << 52;
    // The place of the last bit, counted from 2^-240. It is at most 448.
    int place = exponent - 1075 + 240;
    if (place < 0) {
      if (place <= -53) // zero too
        return;
      mantissa >>= -place;
      place = 0;
    }
    // 53 bits, shifted by up to 31, in two digits that have room.
    uint64_t low = (mantissa & 0xffffffff) << place % 32;
    uint64_t high = (mantissa >> 32) << place % 32;
    digit[place / 32] += low & 0xffffffff;
    digit[place / 32 + 1] += (low >> 32) + high;
  }

  /// Brings all digits but the last below 2^32.
  FSDPC_SHARED void carry() {
    for (int i = 0; i + 1 < normDigits; ++i) {
      digit[i + 1] += digit[i] >> 32;
      digit[i] &= 0xffffffff;
    }
  }

  /// Adds the squares of a part of a member that begins with a group.
  template <typename T>
  FSDPC_SHARED void addSquares(const T *values, int64_t count) {
    int64_t i = 0;
    for (; i + squareGroup <= count; i += squareGroup) {
      add(squaresOfGroup(values + i));
      if (i % (squareGroup * mostAdditions) == 0)
        carry();
    }
    addRest(values + i, count - i);
  }
  /// Adds the squares of a member's last group, which is not whole, and
  /// carries.
  template <typename T>
  FSDPC_SHARED void addRest(const T *values, int64_t count) {
    float group[squareGroup] = {};
    for (int64_t i = 0; i < count; ++i)
      group[i] = widen(values[i]);
    if (count > 0)
      add(squaresOfGroup(group));
    carry();
  }

  /// Both have been carried.
  FSDPC_SHARED void add(const SquareSum &other) {
    for (int i = 0; i < normDigits; ++i)
      digit[i] += other.digit[i];
    notFinite += other.notFinite;
    carry();
  }

  /// Adds what write() gave, or sums of that. Carries.
  FSDPC_SHARED void addWritten(const double *sums) {
    if (!std::isfinite(sums[0])) {
      notFinite += sums[0];
      return;
    }
    for (int i = 0; i < normDigits; ++i)
      digit[i] += uint64_t(sums[i]);
    carry();
  }

  /// Writes normDigits numbers that may be summed over ranks in f64: digits,
  /// whose sums are exact, and an infinity or NaN in place of the first one.
  FSDPC_SHARED void write(double *sums) const {
    for (int i = 0; i < normDigits; ++i)
      sums[i] = 0;
    addTo(sums);
  }
  /// Adds these numbers to what is there.
  FSDPC_SHARED void addTo(double *sums) const {
    for (int i = 0; i < normDigits; ++i)
      sums[i] += double(digit[i]);
    if (!(notFinite == 0))
      sums[0] += notFinite;
  }
};

/// Returns the sum over `count` layouts of what all ranks' write() gave.
/// `failed` is set to the first layout whose sum is not finite, or to -1.
FSDPC_SHARED inline double sumOfSquares(const double *sums, int count,
                                        int64_t &failed) {
  SquareSum total;
  failed = -1;
  for (int i = 0; i < count; ++i, sums += normDigits) {
    if (failed < 0 && !std::isfinite(sums[0]))
      failed = i;
    total.addWritten(sums);
  }
  if (failed >= 0)
    return total.notFinite;
  // The digits are the same however they were added, and so is what they round
  // to. Factors are powers of two.
  double result = 0;
  for (int i = normDigits - 1; i >= 0; --i)
    result = result * 0x1p32 + double(total.digit[i]);
  return result * 0x1p-240;
}

} // namespace fsdpc::runtime

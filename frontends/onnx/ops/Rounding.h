// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions to element types that are narrower than what carries them: floats
// of 4 and 8 bits are rounded, integers wrap. A value in its carrier has the
// narrow type's values only, so the way back needs no op.
#pragma once

#include "frontends/onnx/ElementTypes.h"
#include "frontends/onnx/Node.h"

namespace fsdpc::frontend {

/// Returns the values of an integer type.
struct IntegerRange {
  double least, most;
};
IntegerRange rangeOf(int64_t onnxType);

/// Returns the whole number x (f32) kept within the range of an integer type,
/// in the type's carrier.
mlir::Value saturated(Emitter &b, mlir::Value x, int64_t onnxType);

/// Returns the largest power of two that is at most `magnitude` (f32, not
/// negative), but at least 2^least and at most 2^most; 2^least for NaN. Sets
/// `place` to its exponent less `least`, an i64, unless that is null.
mlir::Value powerOfTwo(Emitter &b, mlir::Value magnitude, int least, int most,
                       mlir::Value *place = nullptr);

/// Returns the integer x (i32 or i64) modulo 2^bits, as a value of the ONNX
/// type with so many bits.
mlir::Value wrapped(Emitter &b, mlir::Value x, int64_t onnxType);

/// Says how a conversion to a narrow float treats values beyond the largest
/// one, and in which direction one to float8e8m0 rounds: "up", "down" or
/// "nearest".
struct Conversion {
  bool saturate = true;
  std::string roundMode = "up";
};
/// Reads the node's attributes 'saturate' and 'round_mode'.
Conversion readConversion(Node &node);

/// Rounds an f32 to the nearest value of a narrow float, ties to even. Its
/// gradient is 0.
mlir::Value rounded(Emitter &b, mlir::Value x, int64_t onnxType,
                    const Conversion &conversion);

/// Returns ONNX's Cast of x between two element types.
mlir::Value converted(Emitter &b, mlir::Value x, int64_t from, int64_t to,
                      const Conversion &conversion);

} // namespace fsdpc::frontend

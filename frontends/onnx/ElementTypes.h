// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ONNX's element types: the nn type that carries each, and the properties that
// nn's type does not keep. Several ONNX types share a carrier: a uint16 is an
// i32, and a float8 is an f32 that has one of the float8's values.
#pragma once

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/APFloat.h"

#include <cstdint>
#include <string>

namespace fsdpc::frontend {

// All types are values of onnx::TensorProto::DataType.

/// Returns nn's element type for an ONNX type (f32 for all floats), or null if
/// it is not supported.
mlir::Type importedType(int64_t onnxType, mlir::MLIRContext *context);

/// Returns the ONNX type that a carrier stands for if nothing else is known, or
/// UNDEFINED for a type that carries none.
int64_t naturalType(mlir::Type carrier);

/// Returns the bits of an element as stored, or 0 for a type without numbers.
int64_t bitsOf(int64_t onnxType);

bool isSignedInteger(int64_t onnxType);
bool isUnsignedInteger(int64_t onnxType);
/// Returns true for floats of 4 and 8 bits.
bool isNarrowFloat(int64_t onnxType);
/// Returns true for the types that only casts, quantisation and ops that move
/// elements take: narrow floats, and integers of 2 and 4 bits.
bool isStorageType(int64_t onnxType);
/// Returns true if the carrier alone says all that arithmetic needs to know:
/// wide floats, and integers that are as wide as their carrier.
bool isPlainType(int64_t onnxType);

/// The format of a narrow float.
const llvm::fltSemantics &semanticsOf(int64_t onnxType);

/// Returns ONNX's name of a type in lower case, such as "float8e4m3fn".
std::string nameOf(int64_t onnxType);

} // namespace fsdpc::frontend

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tables of ONNX's element types, one switch per question, so that a type
// that onnx-ml.proto adds is unknown to all of them until it is listed. Formats
// of narrow floats are LLVM's.
#include "frontends/onnx/ElementTypes.h"

#include "runtime/support/concat.h"

#include "mlir/IR/Builders.h"
#include "onnx-ml.pb.h"
#include "llvm/ADT/StringRef.h"

using namespace mlir;
using namespace fsdpc;
using onnx::TensorProto;

// A type that nn lacks is carried by the next wider one that holds all of its
// values. uint64 is the exception: its upper half becomes negative.
Type frontend::importedType(int64_t onnxType, MLIRContext *context) {
  Builder b(context);
  if (isNarrowFloat(onnxType))
    return b.getF32Type();
  switch (onnxType) {
  case TensorProto::FLOAT:
  case TensorProto::FLOAT16:
  case TensorProto::BFLOAT16:
  case TensorProto::DOUBLE:
    return b.getF32Type();
  case TensorProto::INT64:
  case TensorProto::UINT64:
  case TensorProto::UINT32:
    return b.getI64Type();
  case TensorProto::INT32:
  case TensorProto::INT16:
  case TensorProto::UINT16:
    return b.getI32Type();
  case TensorProto::INT8:
  case TensorProto::INT4:
  case TensorProto::INT2:
    return b.getI8Type();
  case TensorProto::UINT8:
  case TensorProto::UINT4:
  case TensorProto::UINT2:
    return b.getIntegerType(8, /*isSigned=*/false);
  case TensorProto::BOOL:
    return b.getI1Type();
  }
  return nullptr;
}

int64_t frontend::naturalType(Type carrier) {
  if (isa<FloatType>(carrier))
    return TensorProto::FLOAT;
  if (carrier.isInteger(64))
    return TensorProto::INT64;
  if (carrier.isInteger(32))
    return TensorProto::INT32;
  if (carrier.isInteger(8))
    return carrier.isUnsignedInteger() ? TensorProto::UINT8 : TensorProto::INT8;
  return carrier.isInteger(1) ? TensorProto::BOOL : TensorProto::UNDEFINED;
}

// Bools take a byte in a file.
int64_t frontend::bitsOf(int64_t onnxType) {
  switch (onnxType) {
  case TensorProto::DOUBLE:
  case TensorProto::INT64:
  case TensorProto::UINT64:
    return 64;
  case TensorProto::FLOAT:
  case TensorProto::INT32:
  case TensorProto::UINT32:
    return 32;
  case TensorProto::FLOAT16:
  case TensorProto::BFLOAT16:
  case TensorProto::INT16:
  case TensorProto::UINT16:
    return 16;
  case TensorProto::INT8:
  case TensorProto::UINT8:
  case TensorProto::BOOL:
    return 8;
  case TensorProto::INT4:
  case TensorProto::UINT4:
    return 4;
  case TensorProto::INT2:
  case TensorProto::UINT2:
    return 2;
  }
  return !isNarrowFloat(onnxType)              ? 0
         : onnxType == TensorProto::FLOAT4E2M1 ? 4
                                               : 8;
}

bool frontend::isSignedInteger(int64_t onnxType) {
  switch (onnxType) {
  case TensorProto::INT64:
  case TensorProto::INT32:
  case TensorProto::INT16:
  case TensorProto::INT8:
  case TensorProto::INT4:
  case TensorProto::INT2:
    return true;
  }
  return false;
}

bool frontend::isUnsignedInteger(int64_t onnxType) {
  switch (onnxType) {
  case TensorProto::UINT64:
  case TensorProto::UINT32:
  case TensorProto::UINT16:
  case TensorProto::UINT8:
  case TensorProto::UINT4:
  case TensorProto::UINT2:
    return true;
  }
  return false;
}

bool frontend::isNarrowFloat(int64_t onnxType) {
  switch (onnxType) {
  case TensorProto::FLOAT8E4M3FN:
  case TensorProto::FLOAT8E4M3FNUZ:
  case TensorProto::FLOAT8E5M2:
  case TensorProto::FLOAT8E5M2FNUZ:
  case TensorProto::FLOAT8E8M0:
  case TensorProto::FLOAT4E2M1:
    return true;
  }
  return false;
}

bool frontend::isStorageType(int64_t onnxType) {
  return isNarrowFloat(onnxType) ||
         (bitsOf(onnxType) > 0 && bitsOf(onnxType) < 8);
}

// 16-bit integers and unsigned 32- and 64-bit ones are missing: their carriers
// are wider or signed.
bool frontend::isPlainType(int64_t onnxType) {
  switch (onnxType) {
  case TensorProto::FLOAT:
  case TensorProto::FLOAT16:
  case TensorProto::BFLOAT16:
  case TensorProto::DOUBLE:
  case TensorProto::INT64:
  case TensorProto::INT32:
  case TensorProto::INT8:
  case TensorProto::UINT8:
  case TensorProto::BOOL:
    return true;
  }
  return false;
}

const llvm::fltSemantics &frontend::semanticsOf(int64_t onnxType) {
  switch (onnxType) {
  case TensorProto::FLOAT8E4M3FN:
    return llvm::APFloat::Float8E4M3FN();
  case TensorProto::FLOAT8E4M3FNUZ:
    return llvm::APFloat::Float8E4M3FNUZ();
  case TensorProto::FLOAT8E5M2:
    return llvm::APFloat::Float8E5M2();
  case TensorProto::FLOAT8E5M2FNUZ:
    return llvm::APFloat::Float8E5M2FNUZ();
  case TensorProto::FLOAT8E8M0:
    return llvm::APFloat::Float8E8M0FNU();
  case TensorProto::FLOAT4E2M1:
    return llvm::APFloat::Float4E2M1FN();
  }
  llvm_unreachable("not a narrow float");
}

std::string frontend::nameOf(int64_t onnxType) {
  if (!TensorProto::DataType_IsValid(static_cast<int>(onnxType)))
    return concat("type ", onnxType);
  return llvm::StringRef(TensorProto::DataType_Name(
                             static_cast<TensorProto::DataType>(onnxType)))
      .lower();
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Helpers from which the plans of all library calls are built. A plan is an
// attribute with everything that the runtime must know of a call beside its
// operands; ManifestBuilder.cpp copies it to the manifest field by field.
#pragma once

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/rt/RuntimeCall.h"

namespace fsdpc::rt {

/// Returns the library that computes the op; null on the host. Chosen by the
/// pass choose-libraries.
inline mlir::StringAttr libraryOf(mlir::Operation *op) {
  return op->getAttrOfType<mlir::StringAttr>(nn::NNDialect::kLibraryAttr);
}

/// Arrays of a plan: the shape of a value, and numbers in the context of an op.
inline mlir::DenseI64ArrayAttr shapeAttr(mlir::Value value) {
  return mlir::DenseI64ArrayAttr::get(value.getContext(), nn::shapeOf(value));
}

inline mlir::DenseI64ArrayAttr arrayAttr(mlir::Operation *op,
                                         llvm::ArrayRef<int64_t> values) {
  return mlir::DenseI64ArrayAttr::get(op->getContext(), values);
}

} // namespace fsdpc::rt

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface of ops that become calls of the runtime, and what such an op
// may ask of the pass that converts it.
#pragma once

#include "compiler/dialects/rt/RTDialect.h"

namespace fsdpc::rt {

/// Builds the rt ops of one call. The pass that converts a function
/// (convert-to-rt) implements and owns it; createCall must not keep it.
class CallBuilder {
public:
  virtual ~CallBuilder() = default;

  /// The builder, at the place of the op that is converted.
  virtual mlir::OpBuilder &builder() = 0;
  virtual mlir::Location location() = 0;
  /// Returns an rt.pointer to a value, or null for null. It reaches the bytes
  /// from the value's first element to its last, strides included.
  virtual mlir::Value pointer(mlir::Value value) = 0;
  /// Outlines a kernel that has the op as its body, for the part of a library
  /// call that is compiled. Returns its name, or null on devices whose library
  /// computes all of the op.
  virtual mlir::FlatSymbolRefAttr outlineRows(mlir::Operation *op) = 0;

  /// Inserts one rt op; it has no results, since a call only enqueues work.
  template <typename OpTy, typename... Args> void call(Args &&...args) {
    OpTy::create(builder(), location(), std::forward<Args>(args)...);
  }
};

} // namespace fsdpc::rt

#include "compiler/dialects/rt/RuntimeCall.h.inc"

namespace fsdpc::rt {

/// Attaches RuntimeCallOpInterface to the library ops of nn and to reports of
/// outputs, a function per family. The rt dialect calls them when it is loaded.
void attachMatmulCall(mlir::MLIRContext *context);
void attachConvolutionCalls(mlir::MLIRContext *context);
void attachPoolingCalls(mlir::MLIRContext *context);
void attachOutputCall(mlir::MLIRContext *context);
void attachAttentionCalls(mlir::MLIRContext *context);

} // namespace fsdpc::rt

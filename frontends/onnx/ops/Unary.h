// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes handlers of functions of one float value. ONNX has many of them
// that differ in nothing but the expression, so a handler is a template over
// the function that builds it, and the table of ops names it without a body.
#pragma once

#include "frontends/onnx/Node.h"

namespace fsdpc::frontend {

/// A handler that checks for one float input and sets the result of `build`,
/// which returns null after it has refused the node.
template <mlir::Value (*build)(Node &, mlir::Value)>
mlir::LogicalResult activation(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return mlir::failure();
  mlir::Value result = build(node, node.input(0));
  return result ? node.result(result) : mlir::failure();
}

/// An op of nn as a function that `activation` takes.
template <typename OpT> mlir::Value unary(Node &node, mlir::Value x) {
  return node.b.unary<OpT>(x);
}

} // namespace fsdpc::frontend

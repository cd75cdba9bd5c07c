// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads torch's scaled_dot_product_attention where its exporter has written it
// as separate nodes, which say less than the call did.
#pragma once

#include "frontends/onnx/Node.h"

namespace fsdpc::frontend {

/// Returns the result of a Where that a traced attention consists of, or null
/// if the node is another one. `operands` are the node's inputs, broadcast to
/// one shape.
mlir::Value whereOfAttention(Node &node, llvm::ArrayRef<mlir::Value> operands);

/// Returns true if the node is the softmax of a traced attention under a mask
/// that may hide all keys of a query.
bool isSoftmaxOfAttention(Node &node);

/// Returns the softmax of `x` along its last axis, with zeros in rows that are
/// minus infinity throughout. No gradient passes such a row.
mlir::Value softmaxOrZeros(Emitter &b, mlir::Value x);

} // namespace fsdpc::frontend

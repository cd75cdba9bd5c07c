// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lookups that handlers of other files build as well.
#pragma once

#include "frontends/onnx/Node.h"

namespace fsdpc::frontend {

/// Looks up rows of `table` ([rows, …]) by `ids` of any shape, which must not
/// be negative. The result has the shape of the ids followed by that of a row.
/// Row `padding` receives no gradient.
mlir::Value gatherRows(Emitter &b, mlir::Value table, mlir::Value ids,
                       std::optional<int64_t> padding = std::nullopt);

/// Takes the elements `ids` (a vector) of dimension `axis`.
mlir::Value gatherAlong(Emitter &b, mlir::Value data, mlir::Value ids,
                        int64_t axis);

/// Takes the element data[…, indices[…], …] along `axis`; the other positions
/// are those of the index.
mlir::Value takeElements(Emitter &b, mlir::Value data, mlir::Value indices,
                         int64_t axis);

/// Takes the first of the largest or smallest elements along `axis`, which
/// stays with extent 1; that one alone has a gradient. NaN is the largest and
/// the smallest.
mlir::Value takeExtreme(Emitter &b, mlir::Value x, int64_t axis, bool largest);

/// Returns Σ over k of indices[k] · strides[k], the position in a row-major
/// tensor with dimensions `sizes`. Negative indices count from the end. Where
/// an index is outside its dimension the sum is outside the tensor, although
/// another index could lead it back: then it is the smallest integer.
mlir::Value linearPosition(Emitter &b, llvm::ArrayRef<mlir::Value> indices,
                           llvm::ArrayRef<int64_t> sizes);

/// Refuses other types than int32 and int64.
mlir::LogicalResult expectIndices(Node &node, mlir::Value indices);

/// Refuses constant indices outside [-size, size) of dimension `axis`. Others
/// are checked where they are read, or select NaN (nn.embedding).
mlir::LogicalResult expectInside(Node &node, mlir::Value indices, int64_t axis,
                                 int64_t size);

} // namespace fsdpc::frontend

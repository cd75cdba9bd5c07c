// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Windows over one to three spatial dimensions, as nodes of convolution and
// pooling describe them. nn has windows over two dimensions with explicit pads;
// automatic pads, given output sizes and sizes that round up end here.
#pragma once

#include "frontends/onnx/Node.h"

namespace fsdpc::frontend {

/// A window over two or three spatial dimensions. One spatial dimension becomes
/// an image of height 1.
struct Window {
  /// The pads are those before each dimension, then those after: top, left,
  /// bottom, right.
  Shape kernel, strides, dilations, pads;
  Shape output; ///< the spatial dimensions
  /// The padding that ceil_mode adds after each dimension, included in the
  /// pads.
  Shape extra;
};

/// Returns N×C×L as N×C×1×L, and N×C×H×W as it is. Refuses other ranks and
/// returns null.
mlir::Value image(Node &node, mlir::Value x);

/// Removes the dimension that image() has added to an input of rank `rank`.
mlir::Value likeInput(Emitter &b, mlir::Value y, int64_t rank);

/// Reads the window of a node whose input has the spatial dimensions `sizes`
/// (one to three). Returns nullopt after it has refused the node.
std::optional<Window> readWindow(Node &node, llvm::ArrayRef<int64_t> sizes,
                                 llvm::ArrayRef<int64_t> kernel);

/// The same for any number of dimensions up to six; one of them stays one.
std::optional<Window> readPlainWindow(Node &node, llvm::ArrayRef<int64_t> sizes,
                                      llvm::ArrayRef<int64_t> kernel);

/// The same for a transposed convolution, which adds a window to its output for
/// each element of its input. Moved over an image of the size `output`, the
/// window has `sizes` places.
std::optional<Window> readTransposedWindow(Node &node,
                                           llvm::ArrayRef<int64_t> sizes,
                                           llvm::ArrayRef<int64_t> kernel);

} // namespace fsdpc::frontend

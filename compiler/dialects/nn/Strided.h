// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors that are strided in memory, because library calls read and write them
// where other tensors lie. The ops between stay in the IR, marked `nn.strided`,
// so that the IR still says what is computed.
#pragma once

#include "mlir/IR/Operation.h"

#include <optional>

namespace fsdpc::nn {

class SliceOp;

/// The mark of a reshape, transpose, slice or concat without memory of its own.
/// If it is "operand", the result is read where the operand lies; if it is
/// "result", the operands are written where the result lies.
inline constexpr llvm::StringLiteral kStridedAttr = "nn.strided";
inline constexpr llvm::StringLiteral kReadInOperand = "operand";
inline constexpr llvm::StringLiteral kWrittenInResult = "result";

/// Returns true if the op has either mark.
bool isStrided(mlir::Operation *op);

/// The position of a tensor's elements in the memory of a dense tensor, in
/// elements. Axes of size 1 have stride 0, and no stride is negative.
struct Strides {
  int64_t offset = 0;
  llvm::SmallVector<int64_t> strides;
};

/// Returns the row-major strides of a tensor of this shape that begins at
/// offset 0.
Strides denseStrides(llvm::ArrayRef<int64_t> shape);
/// Returns the strides of the op's result, given those of its operand; nullopt
/// if strides cannot express them.
std::optional<Strides> stridesOfResult(mlir::Operation *op,
                                       const Strides &operand);
/// Returns the strides of an operand, given those of the result; nullopt
/// likewise.
std::optional<Strides> stridesOfOperand(mlir::OpOperand &operand,
                                        const Strides &result);
/// Returns the strides that follow from the marked ops around a value; nullopt
/// if an op cannot be what its mark says. A value without marked ops is dense.
std::optional<Strides> stridesOf(mlir::Value value);

/// Returns the offset of a slice in its operand's memory, in elements; nullopt
/// if it is not a view of it.
std::optional<int64_t> sliceOffset(SliceOp slice);
/// Returns the number of elements from the first to the last of a value,
/// including those between that belong to other values.
int64_t extentOf(mlir::Value value);

} // namespace fsdpc::nn

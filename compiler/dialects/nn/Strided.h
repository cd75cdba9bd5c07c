// Tensors that lie in memory with strides, because library calls read and write
// them where other tensors lie. The ops between stay in the IR, marked
// `nn.strided`, so that what is computed can still be read off it.
#pragma once

#include "compiler/dialects/nn/NNDialect.h"

namespace fsdpc::nn {

/// Of a reshape, transpose, slice or concat without memory of its own:
/// "operand", its result is read where its operand lies; "result", its operands
/// are written where its result lies.
inline constexpr llvm::StringLiteral kStridedAttr = "nn.strided";
inline constexpr llvm::StringLiteral kReadInOperand = "operand";
inline constexpr llvm::StringLiteral kWrittenInResult = "result";

bool isStrided(mlir::Operation *op);

/// Where a tensor's elements lie in a dense tensor's memory, in elements. Axes
/// of size 1 have stride 0.
struct Strides {
  int64_t offset = 0;
  llvm::SmallVector<int64_t> strides;
};

Strides denseStrides(llvm::ArrayRef<int64_t> shape);
/// Of the op's result, given its operand's; none where strides cannot say it.
std::optional<Strides> stridesOfResult(mlir::Operation *op,
                                       const Strides &operand);
/// Of an operand, given the result's, likewise.
std::optional<Strides> stridesOfOperand(mlir::OpOperand &operand,
                                        const Strides &result);
/// By the marked ops around a value; none where they contradict their marks.
std::optional<Strides> stridesOf(mlir::Value value);

/// Where a slice begins in its operand's memory; none where it is no view of
/// it.
std::optional<int64_t> sliceOffset(SliceOp slice);
/// Elements from the first to the last of a value, those between included.
int64_t extentOf(mlir::Value value);

} // namespace fsdpc::nn

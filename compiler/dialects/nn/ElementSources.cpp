// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The affine maps of the ops that move elements: from an element of the result
// to the element of the operand that it comes from. Kernels compute addresses
// from the maps and strided views follow from them, so neither knows the ops.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/dialects/nn/Strided.h"

using namespace mlir;

namespace fsdpc::nn {

using Sources = SmallVector<ElementSource, 1>;

// d0 … of the index of `value`.
static SmallVector<AffineExpr> indexOf(Value value) {
  SmallVector<AffineExpr> index;
  for (int64_t i = 0; i < tensorType(value).getRank(); ++i)
    index.push_back(getAffineDimExpr(i, value.getContext()));
  return index;
}

// Returns the map from an index of `result` to `operandIndex`. Symbol 0, if
// there is one, is the index that is read from an operand.
static AffineMap mapOf(Value result, ArrayRef<AffineExpr> operandIndex,
                       unsigned symbols = 0) {
  return AffineMap::get(tensorType(result).getRank(), symbols, operandIndex,
                        result.getContext());
}

// Drops the leading dimensions that the operand lacks, and reads index 0 along
// those that are repeated.
Sources BroadcastOp::getElementSources() {
  ArrayRef<int64_t> shape = shapeOf(getInput());
  SmallVector<AffineExpr> index = indexOf(getResult());
  index.erase(index.begin(), index.end() - shape.size());
  for (auto [expr, size] : llvm::zip_equal(index, shape))
    if (size == 1)
      expr = getAffineConstantExpr(0, getContext());
  return {{0, mapOf(getResult(), index), {}, {}}};
}

// A null map: the element keeps its row-major position.
Sources ReshapeOp::getElementSources() { return {{0, {}, {}, {}}}; }

// Dimension i of the result is dimension permutation[i] of the operand.
Sources TransposeOp::getElementSources() {
  SmallVector<AffineExpr> from = indexOf(getResult()), index(from.size());
  for (auto [i, axis] : llvm::enumerate(getPermutation()))
    index[axis] = from[i];
  return {{0, mapOf(getResult(), index), {}, {}}};
}

Sources SliceOp::getElementSources() {
  SmallVector<AffineExpr> index = indexOf(getResult());
  for (auto [i, expr] : llvm::enumerate(index))
    expr = expr * getStrides()[i] + getOffsets()[i];
  return {{0, mapOf(getResult(), index), {}, {}}};
}

// The operand's element i lies at offset + i · stride of the result. An element
// of the result is one of the operand's if its distance from the offset is a
// multiple of the stride and the quotient a valid index; else it is 0.
Sources PadOp::getElementSources() {
  ElementSource source{0, {}, {}, {}};
  SmallVector<AffineExpr> index = indexOf(getResult());
  for (auto [i, size] : llvm::enumerate(shapeOf(getInput()))) {
    int64_t stride = getStrides()[i];
    AffineExpr distance = index[i] - getOffsets()[i];
    // Affine mod and floordiv need a positive divisor.
    if (stride < 0) {
      stride = -stride;
      distance = -distance;
    }
    // With stride 1 every distance is a multiple.
    if (stride != 1)
      source.conditions.push_back({distance % stride, 0, 0});
    index[i] = distance.floorDiv(stride);
    source.conditions.push_back({index[i], 0, size - 1});
  }
  source.map = mapOf(getResult(), index);
  return {source};
}

// One source per input, each with the range of the axis that it fills. The
// ranges are disjoint, so the order of the sources does not matter.
Sources ConcatOp::getElementSources() {
  Sources sources;
  SmallVector<AffineExpr> index = indexOf(getResult());
  int64_t axis = getAxis(), begin = 0;
  AffineExpr along = index[axis];
  for (OpOperand &input : getInputsMutable()) {
    int64_t size = shapeOf(input.get())[axis];
    index[axis] = along - begin;
    sources.push_back({input.getOperandNumber(),
                       mapOf(getResult(), index),
                       {{along, begin, begin + size - 1}},
                       {}});
    begin += size;
  }
  return sources;
}

// The ids index the result but for its last dimension.
Sources EmbeddingOp::getElementSources() {
  SmallVector<AffineExpr> index = indexOf(getResult());
  AffineExpr column = index.pop_back_val(),
             row = getAffineSymbolExpr(0, getContext());
  DynamicIndex id{1, mapOf(getResult(), index), shapeOf(getTable())[0],
                  /*wraps=*/true};
  return {{0, mapOf(getResult(), {row, column}, /*symbols=*/1), {}, id}};
}

Value SliceOp::getViewSource() { return getInput(); }

// Called once kernels are outlined, when all slices that remain are contiguous
// or marked `nn.strided`, so there is an offset.
int64_t SliceOp::getViewOffset() { return *sliceOffset(*this); }

} // namespace fsdpc::nn

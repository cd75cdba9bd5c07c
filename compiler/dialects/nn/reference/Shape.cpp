// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference of ops that move or choose elements. Each is a function from
// the index of a result's element to the position of its source; where that is
// -1 the element stays what it was.
#include "compiler/dialects/nn/reference/Families.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <limits>

using namespace mlir;

namespace fsdpc::nn::reference {

/// Both tensors have one element type.
static void copyElement(const ReferenceTensor &from, int64_t source,
                        ReferenceTensor &to, int64_t target) {
  if (to.isFloat())
    to.floats[target] = from.floats[source];
  else
    to.ints[target] = from.ints[source];
}

/// Sets to[index] = from[source(index)] if the source is not negative.
static void gather(const ReferenceTensor &from, ReferenceTensor &to,
                   function_ref<int64_t(Index)> source) {
  forEachIndex(to.shape, [&](Index index, int64_t position) {
    int64_t at = source(index);
    if (at >= 0)
      copyElement(from, at, to, position);
  });
}

/// The value of what an index outside of a tensor selects: NaN, or the smallest
/// integer. The kernels give the same, so that a wrong index shows in the loss
/// or in the text.
static void poison(ReferenceTensor &tensor) {
  bool isUnsigned =
      tensor.element.isInteger(1) || tensor.element.isUnsignedInteger();
  std::fill(tensor.floats.begin(), tensor.floats.end(),
            std::numeric_limits<double>::quiet_NaN());
  std::fill(tensor.ints.begin(), tensor.ints.end(),
            isUnsigned ? 0
                       : llvm::minIntN(tensor.element.getIntOrFloatBitWidth()));
}

/// Returns offsets + index · strides.
static SmallVector<int64_t> stridedIndex(Index index, ArrayRef<int64_t> offsets,
                                         ArrayRef<int64_t> strides) {
  SmallVector<int64_t> at(index);
  for (size_t i = 0; i < at.size(); ++i)
    at[i] = offsets[i] + at[i] * strides[i];
  return at;
}

static void iota(IotaOp op, Inputs, ReferenceTensors &outs) {
  ReferenceTensor &out = outs.front();
  forEachIndex(out.shape, [&](Index index, int64_t position) {
    if (out.isFloat())
      out.floats[position] = index[op.getAxis()];
    else
      out.ints[position] = index[op.getAxis()];
  });
}

// Scatters the input; elements between and around it stay 0.
static void pad(PadOp op, Inputs in, ReferenceTensors &outs) {
  ReferenceTensor &out = outs.front();
  forEachIndex(in[0].shape, [&](Index index, int64_t position) {
    copyElement(in[0], position, out,
                positionOf(out.shape, stridedIndex(index, op.getOffsets(),
                                                   op.getStrides())));
  });
}

static void concat(ConcatOp op, Inputs in, ReferenceTensors &outs) {
  ReferenceTensor &out = outs.front();
  int64_t offset = 0;
  // Each input is moved along the axis by the sizes of those before it.
  for (const ReferenceTensor &input : in) {
    forEachIndex(input.shape, [&](Index index, int64_t position) {
      SmallVector<int64_t> at(index);
      at[op.getAxis()] += offset;
      copyElement(input, position, out, positionOf(out.shape, at));
    });
    offset += input.shape[op.getAxis()];
  }
}

/// Returns the row of an id, which counts from the end if it is negative, or -1
/// if it is outside the table.
static int64_t rowOf(int64_t id, int64_t rows) {
  if (id < 0)
    id += rows;
  return id >= 0 && id < rows ? id : -1;
}

// Rows that occur several times add up, in the order of the ids. Ids outside of
// the table and the padding row are skipped.
static void embeddingGrad(EmbeddingGradOp op, Inputs in,
                          ReferenceTensors &outs) {
  ReferenceTensor &out = outs.front();
  int64_t rows = out.shape[0], width = out.shape[1];
  int64_t padding = op.getPaddingIndex().value_or(-1); // -1: no row
  // The sums start from the accumulator, or else from zeros.
  if (op.getAccumulator())
    out.floats = in[2].floats;
  for (int64_t i = 0; i < in[1].size(); ++i) {
    int64_t row = rowOf(in[1].ints[i], rows);
    if (row < 0 || row == padding)
      continue;
    for (int64_t j = 0; j < width; ++j)
      out.floats[row * width + j] += in[0].floats[i * width + j];
  }
}

// The ops whose elements each come from one place of operand 0.
static void addGathers(ReferenceTable &table) {
  table.add<BroadcastOp>([](BroadcastOp, Inputs in, ReferenceTensors &out) {
    gather(in[0], out[0],
           [&](Index index) { return broadcastPosition(in[0].shape, index); });
  });
  // A reshape keeps the row-major position, so the result's shape gives it.
  table.add<ReshapeOp>([](ReshapeOp, Inputs in, ReferenceTensors &out) {
    gather(in[0], out[0],
           [&](Index index) { return positionOf(out[0].shape, index); });
  });
  table.add<TransposeOp>([](TransposeOp op, Inputs in, ReferenceTensors &out) {
    gather(in[0], out[0], [&](Index index) {
      SmallVector<int64_t> at(index.size());
      for (auto [i, axis] : llvm::enumerate(op.getPermutation()))
        at[axis] = index[i];
      return positionOf(in[0].shape, at);
    });
  });
  table.add<SliceOp>([](SliceOp op, Inputs in, ReferenceTensors &out) {
    gather(in[0], out[0], [&](Index index) {
      return positionOf(in[0].shape,
                        stridedIndex(index, op.getOffsets(), op.getStrides()));
    });
  });
  table.add<TakeAlongAxisOp>(
      [](TakeAlongAxisOp, Inputs in, ReferenceTensors &out) {
        // First every element is poisoned, then those with a valid index are
        // read.
        poison(out[0]);
        gather(in[0], out[0], [&](Index index) -> int64_t {
          // One index per row: the last dimension of the index tensor is 1.
          SmallVector<int64_t> at(index);
          at.back() = in[1].ints[positionOf(in[1].shape, index)];
          bool inside = at.back() >= 0 && at.back() < in[0].shape.back();
          return inside ? positionOf(in[0].shape, at) : -1;
        });
      });
  table.add<EmbeddingOp>([](EmbeddingOp, Inputs in, ReferenceTensors &out) {
    poison(out[0]);
    gather(in[0], out[0], [&](Index index) -> int64_t {
      int64_t row =
          rowOf(in[1].ints[positionOf(in[1].shape, index.drop_back())],
                in[0].shape[0]);
      return row < 0 ? -1 : row * in[0].shape[1] + index.back();
    });
  });
}

void addShape(ReferenceTable &table) {
  addGathers(table);
  table.add<IotaOp>(iota);
  table.add<PadOp>(pad);
  table.add<ConcatOp>(concat);
  table.add<EmbeddingGradOp>(embeddingGrad);
}

} // namespace fsdpc::nn::reference

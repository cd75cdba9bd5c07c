// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference of pooling and its gradients: walks over the windows, in the
// order of the result's elements. A tap is a position within the window, row by
// row.
#include "compiler/dialects/nn/reference/Families.h"

#include <cmath>

using namespace mlir;

namespace fsdpc::nn::reference {

/// Calls `visit(input, tap)` for each element of the window at `index` that is
/// not padding.
template <typename PoolOp, typename Fn>
static void forEachTap(PoolOp op, ArrayRef<int64_t> input, Index index,
                       Fn visit) {
  ArrayRef<int64_t> kernel = op.getKernel(), strides = op.getStrides(),
                    pads = op.getPads();
  for (int64_t i = 0; i < kernel[0]; ++i)
    for (int64_t j = 0; j < kernel[1]; ++j) {
      int64_t row = index[2] * strides[0] - pads[0] + i;
      int64_t column = index[3] * strides[1] - pads[1] + j;
      if (row >= 0 && row < input[2] && column >= 0 && column < input[3])
        visit(positionOf(input, {index[0], index[1], row, column}),
              i * kernel[1] + j);
    }
}

/// Returns the divisor of the sum over a window.
template <typename PoolOp>
static double divisorOf(PoolOp op, ArrayRef<int64_t> input, Index index) {
  if (op.getCountPadding())
    return llvm::product_of(op.getKernel());
  // Windows at the border have fewer elements that are not padding.
  double count = 0;
  forEachTap(op, input, index, [&](int64_t, int64_t) { ++count; });
  return count;
}

// The second result is the tap of the maximum; of equal elements the first
// wins, and so does the first NaN. A verified window has at least one element
// that is not padding.
static void maxPool(MaxPool2dOp op, Inputs in, ReferenceTensors &out) {
  forEachIndex(out[0].shape, [&](Index index, int64_t position) {
    bool isFirst = true;
    double &maximum = out[0].floats[position];
    forEachTap(op, in[0].shape, index, [&](int64_t at, int64_t tap) {
      double value = in[0].floats[at];
      if (isFirst || value > maximum ||
          (std::isnan(value) && !std::isnan(maximum))) {
        maximum = value;
        out[1].ints[position] = tap;
      }
      isFirst = false;
    });
  });
}

// Windows may overlap, so gradients add up.
static void maxPoolGrad(MaxPool2dGradOp op, Inputs in, ReferenceTensors &out) {
  forEachIndex(in[0].shape, [&](Index index, int64_t position) {
    forEachTap(op, out[0].shape, index, [&](int64_t at, int64_t tap) {
      if (tap == in[1].ints[position])
        out[0].floats[at] += in[0].floats[position];
    });
  });
}

static void averagePool(AvgPool2dOp op, Inputs in, ReferenceTensors &out) {
  forEachIndex(out[0].shape, [&](Index index, int64_t position) {
    double divisor = divisorOf(op, in[0].shape, index);
    forEachTap(op, in[0].shape, index, [&](int64_t at, int64_t) {
      out[0].floats[position] += in[0].floats[at] / divisor;
    });
  });
}

// Each element of a window contributed 1 / divisor to the mean.
static void averagePoolGrad(AvgPool2dGradOp op, Inputs in,
                            ReferenceTensors &out) {
  forEachIndex(in[0].shape, [&](Index index, int64_t position) {
    double divisor = divisorOf(op, out[0].shape, index);
    forEachTap(op, out[0].shape, index, [&](int64_t at, int64_t) {
      out[0].floats[at] += in[0].floats[position] / divisor;
    });
  });
}

void addPooling(ReferenceTable &table) {
  table.add<MaxPool2dOp>(maxPool);
  table.add<MaxPool2dGradOp>(maxPoolGrad);
  table.add<AvgPool2dOp>(averagePool);
  table.add<AvgPool2dGradOp>(averagePoolGrad);
}

} // namespace fsdpc::nn::reference

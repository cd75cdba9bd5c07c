// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference of convolution and its gradients: one walk over all products of
// an input and a filter element, which each of the three ops sums differently.
#include "compiler/dialects/nn/reference/Families.h"

using namespace mlir;

namespace fsdpc::nn::reference {

/// Calls `visit(input, filter, output)` with the positions of each product.
template <typename ConvOp, typename Fn>
static void forEachProduct(ConvOp op, ArrayRef<int64_t> input,
                           ArrayRef<int64_t> filter, ArrayRef<int64_t> output,
                           Fn visit) {
  ArrayRef<int64_t> strides = op.getStrides(), pads = op.getPads(),
                    dilations = op.getDilations();
  // A group has this many filters, each of which reads filter[1] channels.
  int64_t filtersOfGroup = filter[0] / static_cast<int64_t>(op.getGroups());
  forEachIndex(output, [&](Index o, int64_t outputAt) {
    forEachIndex(filter.drop_front(), [&](Index f, int64_t filterAt) {
      int64_t channel = o[1] / filtersOfGroup * filter[1] + f[0];
      // pads are top, left, bottom, right; only the first two shift the window.
      int64_t row = o[2] * strides[0] - pads[0] + f[1] * dilations[0];
      int64_t column = o[3] * strides[1] - pads[1] + f[2] * dilations[1];
      // Padding is zero and adds nothing to any of the three sums.
      if (row < 0 || row >= input[2] || column < 0 || column >= input[3])
        return;
      visit(positionOf(input, {o[0], channel, row, column}),
            o[1] * llvm::product_of(filter.drop_front()) + filterAt, outputAt);
    });
  });
}

static void conv2d(Conv2dOp op, Inputs in, ReferenceTensors &out) {
  forEachProduct(op, in[0].shape, in[1].shape, out[0].shape,
                 [&](int64_t input, int64_t filter, int64_t output) {
                   out[0].floats[output] +=
                       in[0].floats[input] * in[1].floats[filter];
                 });
}

// The gradients sum the same products by another of the three positions. Their
// result takes the place of the operand that it is the gradient of.
static void conv2dGradInput(Conv2dGradInputOp op, Inputs in,
                            ReferenceTensors &out) {
  forEachProduct(op, out[0].shape, in[1].shape, in[0].shape,
                 [&](int64_t input, int64_t filter, int64_t output) {
                   out[0].floats[input] +=
                       in[0].floats[output] * in[1].floats[filter];
                 });
}

static void conv2dGradFilter(Conv2dGradFilterOp op, Inputs in,
                             ReferenceTensors &out) {
  forEachProduct(op, in[1].shape, out[0].shape, in[0].shape,
                 [&](int64_t input, int64_t filter, int64_t output) {
                   out[0].floats[filter] +=
                       in[0].floats[output] * in[1].floats[input];
                 });
}

void addConvolutions(ReferenceTable &table) {
  table.add<Conv2dOp>(conv2d);
  table.add<Conv2dGradInputOp>(conv2dGradInput);
  table.add<Conv2dGradFilterOp>(conv2dGradFilter);
}

} // namespace fsdpc::nn::reference

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions and pooling in the conformance suite for library calls
// (library_test.cpp): forward and gradients, with strides, pads, dilations and
// groups.
#include "tests/runtime/device/library_test.h"

#include <algorithm>
#include <cmath>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

void Libraries::checkConvolution(ConvolutionPlan p) {
  auto outExtent = [&](int axis, int64_t in, int64_t kernel) {
    return (in + p.padsBegin[axis] + p.padsEnd[axis] -
            p.dilations[axis] * (kernel - 1) - 1) /
               p.strides[axis] +
           1;
  };
  p.outHeight = outExtent(0, p.height, p.kernelHeight);
  p.outWidth = outExtent(1, p.width, p.kernelWidth);
  int64_t gc = p.channels / p.groups, gf = p.filters / p.groups;
  Tensor x(p.dtype, p.batch * p.channels * p.height * p.width);
  Tensor w(p.dtype, p.filters * gc * p.kernelHeight * p.kernelWidth);
  Tensor y(p.dtype, p.batch * p.filters * p.outHeight * p.outWidth);
  for (const char *kind : {"forward", "input", "weight"}) {
    SCOPED_TRACE(kind);
    p.kind = kind;
    Tensor *operands[] = {&x, &w, &y};
    if (p.kind == "input")
      std::swap(operands[0], operands[2]); // dy, w, dx
    if (p.kind == "weight")
      std::swap(operands[1], operands[2]); // x, dy, dw
    operands[0]->fill(4);
    operands[1]->fill(5);
    Tensor &result = *operands[2], initial(p.dtype, result.size());
    initial.fill(6); // must be overwritten
    Manifest manifest;
    manifest.convolutions.push_back(p);
    run(manifest, {*operands[0], *operands[1], result}, result, initial,
        [](Device &d, auto &at) { d.convolution(0, at[0], at[1], at[2]); });
    std::vector<double> expected(result.size(), 0);
    for (int64_t n = 0; n < p.batch; ++n)
      for (int64_t f = 0; f < p.filters; ++f)
        for (int64_t i = 0; i < p.outHeight; ++i)
          for (int64_t j = 0; j < p.outWidth; ++j)
            for (int64_t c = 0; c < gc; ++c)
              for (int64_t ki = 0; ki < p.kernelHeight; ++ki)
                for (int64_t kj = 0; kj < p.kernelWidth; ++kj) {
                  int64_t r =
                      i * p.strides[0] + ki * p.dilations[0] - p.padsBegin[0];
                  int64_t s =
                      j * p.strides[1] + kj * p.dilations[1] - p.padsBegin[1];
                  if (r < 0 || r >= p.height || s < 0 || s >= p.width)
                    continue;
                  int64_t channel = f / gf * gc + c;
                  int64_t ix =
                      ((n * p.channels + channel) * p.height + r) * p.width + s;
                  int64_t iw =
                      ((f * gc + c) * p.kernelHeight + ki) * p.kernelWidth + kj;
                  int64_t iy =
                      ((n * p.filters + f) * p.outHeight + i) * p.outWidth + j;
                  if (p.kind == "forward")
                    expected[iy] += x[ix] * w[iw];
                  else if (p.kind == "input")
                    expected[ix] += y[iy] * w[iw];
                  else
                    expected[iw] += x[ix] * y[iy];
                }
    // A weight's gradient sums over all places of the output.
    int64_t terms = gc * p.kernelHeight * 9;
    if (p.kind == "weight")
      terms = std::max(terms, p.batch * p.outHeight * p.outWidth);
    expectClose(result, expected, std::sqrt(double(terms)));
  }
}

// The shapes of residual nets and vision transformers, with groups, dilations
// and uneven padding.
TEST_P(Libraries, convolution) {
  for (const std::string &dtype : dtypes()) {
    ConvolutionPlan p;
    p.dtype = dtype;
    p.batch = 3, p.channels = 4, p.height = 9, p.width = 11, p.filters = 6;
    p.kernelHeight = p.kernelWidth = 3;
    p.strides = p.dilations = {1, 1};
    p.padsBegin = p.padsEnd = {1, 1};
    checkConvolution(p);
    p.strides = {2, 2}; // downsampling in a residual net
    checkConvolution(p);
    p.groups = 2, p.dilations = {1, 2}, p.padsEnd = {0, 2};
    checkConvolution(p);
    p.groups = 1, p.kernelHeight = p.kernelWidth = 1; // pointwise
    p.strides = p.dilations = {1, 1}, p.padsBegin = p.padsEnd = {0, 0};
    checkConvolution(p);
    p.strides = {2, 2}; // its shortcut
    checkConvolution(p);
    p.kernelHeight = 4, p.kernelWidth = 4, p.strides = {4, 4}; // patches
    p.batch = 1, p.height = 40, p.width = 36, p.channels = 3, p.filters = 20;
    checkConvolution(p);
  }
}

// Few channels per group: depthwise, several filters per channel, and more
// columns and rows than one block has.
TEST_P(Libraries, convolutionOfSmallGroups) {
  for (const std::string &dtype : dtypes()) {
    ConvolutionPlan p;
    p.dtype = dtype;
    p.batch = 2, p.channels = p.filters = p.groups = 6;
    p.height = 9, p.width = 11, p.kernelHeight = 3, p.kernelWidth = 3;
    p.strides = p.dilations = {1, 1};
    p.padsBegin = p.padsEnd = {1, 1};
    checkConvolution(p);
    p.strides = {2, 2};
    checkConvolution(p);
    p.strides = {3, 2}, p.dilations = {2, 3}, p.padsBegin = {2, 4};
    checkConvolution(p);
    // Padding beyond the kernel, of which the gradient of the input skips rows.
    p.strides = p.dilations = {1, 1}, p.padsBegin = {4, 3}, p.padsEnd = {0, 5};
    checkConvolution(p);
    p.padsBegin = p.padsEnd = {0, 0}, p.kernelHeight = 2, p.kernelWidth = 5;
    p.filters = 18; // three per channel
    checkConvolution(p);
    p.groups = 2, p.filters = 14, p.width = 70, p.height = 40, p.batch = 1;
    checkConvolution(p);
  }
}

// The reference visits every cell of every window.
void Libraries::checkPooling(PoolingPlan p, bool gradient) {
  int64_t planes = p.batch * p.channels, plane = p.height * p.width;
  int64_t outPlane = p.outHeight * p.outWidth;
  Tensor x(p.dtype, planes * plane), y(p.dtype, planes * outPlane);
  std::vector<int32_t> workspace(planes * outPlane, -1);
  x.fill(7);
  std::vector<double> expectedY(y.size()), expectedX(x.size(), 0);
  std::vector<int32_t> expectedWorkspace(workspace.size(), -1);
  Tensor dy(p.dtype, y.size());
  dy.fill(8);
  bool maximum = p.kind == "max";
  for (int64_t q = 0; q < planes; ++q)
    for (int64_t i = 0; i < p.outHeight; ++i)
      for (int64_t j = 0; j < p.outWidth; ++j) {
        int64_t out = (q * p.outHeight + i) * p.outWidth + j, best = -1;
        double sum = 0, count = 0, padded = 0;
        std::vector<int64_t> cells;
        for (int64_t ki = 0; ki < p.kernel[0]; ++ki)
          for (int64_t kj = 0; kj < p.kernel[1]; ++kj) {
            int64_t r = i * p.strides[0] + ki - p.padsBegin[0];
            int64_t s = j * p.strides[1] + kj - p.padsBegin[1];
            padded += r < p.height + p.padsEnd[0] && s < p.width + p.padsEnd[1];
            if (r < 0 || r >= p.height || s < 0 || s >= p.width)
              continue;
            int64_t in = q * plane + r * p.width + s;
            cells.push_back(in);
            sum += x[in];
            ++count;
            if (best < 0 || x[in] > x[best]) {
              best = in;
              expectedWorkspace[out] = int32_t(ki * p.kernel[1] + kj);
            }
          }
        double divisor = p.countPadding ? padded : count;
        expectedY[out] = maximum ? x[best] : sum / divisor;
        if (maximum)
          expectedX[best] += dy[out];
        else
          for (int64_t in : cells)
            expectedX[in] += dy[out] / divisor;
      }
  Manifest manifest;
  manifest.poolings.push_back(p);
  Tensor empty(p.dtype, y.size());
  auto pool = [](Device &d, auto &at) { d.pooling(0, at[0], at[1], at[2]); };
  Operand indices = maximum ? Operand(workspace) : Operand(nullptr);
  run(manifest, {x, y, indices}, y, empty, pool);
  expectClose(y, expectedY, 1);
  if (maximum) {
    EXPECT_EQ(workspace, expectedWorkspace);
  }
  if (!gradient)
    return;
  manifest.poolings[0].kind += "_grad";
  Tensor dx(p.dtype, x.size()), initial(p.dtype, x.size());
  initial.fill(9);
  run(manifest, {dy, dx, indices}, dx, initial, pool);
  expectClose(dx, expectedX, 1);
}

// Overlapping windows, one window over the whole plane, and gaps between
// windows.
TEST_P(Libraries, pooling) {
  for (const std::string &dtype : dtypes())
    for (const char *kind : {"max", "average"}) {
      PoolingPlan p;
      p.kind = kind, p.dtype = dtype;
      p.batch = 2, p.channels = 3, p.height = 9, p.width = 12;
      p.kernel = {3, 3}, p.strides = {2, 2};
      p.padsBegin = {1, 1}, p.padsEnd = {1, 1};
      p.outHeight = 5, p.outWidth = 6;
      checkPooling(p, true);
      p.countPadding = true;
      checkPooling(p, true);
      p.kernel = {9, 12}, p.strides = {1, 1}; // the whole plane
      p.padsBegin = p.padsEnd = {0, 0};
      p.outHeight = p.outWidth = 1;
      checkPooling(p, true);
      p.kernel = {2, 3}, p.strides = {3, 4}; // gaps between windows
      p.outHeight = 3, p.outWidth = 3;
      checkPooling(p, true);
    }
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions by im2col over whole images; the three kinds differ only in what
// is multiplied by what, and whether windows are read or added to. Simple
// rather than fast: it stands for cuDNN in tests.
#include "runtime/emulation/convolution.h"
#include "runtime/emulation/gemm.h"
#include "runtime/emulation/values.h"

#include <cstdint>
#include <vector>

namespace fsdpc::runtime::emulation {

namespace {

// Calls each(cell of the matrix, cell of the image) for every cell of a group's
// window matrix (channel and kernel cell × output cell) that lies inside the
// image. Cells in the padding are left out.
template <typename Each>
void eachWindowCell(const ConvolutionPlan &p, int64_t channels, Each each) {
  int64_t cell = 0;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t ki = 0; ki < p.kernelHeight; ++ki)
      for (int64_t kj = 0; kj < p.kernelWidth; ++kj)
        for (int64_t i = 0; i < p.outHeight; ++i)
          for (int64_t j = 0; j < p.outWidth; ++j, ++cell) {
            int64_t y = i * p.strides[0] + ki * p.dilations[0] - p.padsBegin[0];
            int64_t x = j * p.strides[1] + kj * p.dilations[1] - p.padsBegin[1];
            if (y >= 0 && y < p.height && x >= 0 && x < p.width)
              each(cell, (c * p.height + y) * p.width + x);
          }
}

} // namespace

void convolve(const ConvolutionPlan &p, const void *x, const void *w, void *y) {
  // Per group. `depth` counts the weights of a filter, `cells` the outputs of a
  // plane, `image` the inputs of an image.
  int64_t channels = p.channels / p.groups, filters = p.filters / p.groups;
  int64_t depth = channels * p.kernelHeight * p.kernelWidth;
  int64_t cells = p.outHeight * p.outWidth;
  int64_t image = channels * p.height * p.width;
  bool forward = p.kind == "forward", weight = p.kind == "weight";
  std::vector<float> matrix(depth * cells);
  for (int64_t group = 0; group < p.groups; ++group) {
    int64_t firstWeight = group * filters * depth;
    // For a weight gradient the sum runs over the batch; for an input gradient
    // it is reset per image.
    std::vector<float> sum(weight ? filters * depth : image);
    for (int64_t n = 0; n < p.batch; ++n) {
      int64_t entry = n * p.groups + group;
      int64_t firstOut = entry * filters * cells;
      Product product;
      if (p.kind == "input") {
        // Wᵀ · dy gives the matrix; its cells are then added back to the image.
        product = {depth,
                   cells,
                   filters,
                   {at(w, p.dtype, firstWeight), p.dtype, 1, depth},
                   {at(x, p.dtype, firstOut), p.dtype, cells, 1},
                   matrix.data(),
                   "f32",
                   cells};
        multiply(product);
        sum.assign(image, 0.0f);
        eachWindowCell(p, channels, [&](int64_t from, int64_t to) {
          sum[to] += matrix[from];
        });
        storeValues(sum, p.dtype, at(y, p.dtype, entry * image));
        continue;
      }
      // Rows of the matrix are channel and kernel cell, columns are output
      // cells; the padding stays 0.
      std::vector<float> source =
          loadValues(at(x, p.dtype, entry * image), p.dtype, image);
      matrix.assign(matrix.size(), 0.0f);
      eachWindowCell(p, channels, [&](int64_t to, int64_t from) {
        matrix[to] = source[from];
      });
      if (forward)
        product = {filters,
                   cells,
                   depth,
                   {at(w, p.dtype, firstWeight), p.dtype, depth, 1},
                   {matrix.data(), "f32", cells, 1},
                   at(y, p.dtype, firstOut),
                   p.dtype,
                   cells};
      else
        product = {filters,
                   depth,
                   cells,
                   {at(w, p.dtype, firstOut), p.dtype, cells, 1},
                   {matrix.data(), "f32", 1, cells},
                   sum.data(),
                   "f32",
                   depth,
                   sum.data()};
      multiply(product);
    }
    if (weight)
      storeValues(sum, p.dtype, at(y, p.dtype, firstWeight));
  }
}

} // namespace fsdpc::runtime::emulation

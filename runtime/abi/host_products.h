// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The matrix products that library calls on the host are made of: their shapes,
// and how a call is cut into them. The runtime computes them (runtime/host),
// and the memory plan counts their scratch memory (host_scratch.h), so both cut
// alike.
//
// Cuts depend on the plan alone and never on the machine or the number of
// threads: they fix the order of sums, and with it the bits.
#pragma once

#include "runtime/abi/element_type.h"
#include "runtime/abi/manifest.h"
#include "runtime/support/round_up.h"
#include "runtime/support/status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc {

/// C[m×n] = A[m×k] · B[k×n], plus C if `accumulate`. Strides are in elements.
/// One stride of A and one of B must be 1; the elements of a row of C are
/// adjacent.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t rowA = 0, columnA = 1, rowB = 0, columnB = 1, rowC = 0;
  ElementType a = ElementType::f32, b = ElementType::f32, c = ElementType::f32;
  bool accumulate = false;

  bool operator<(const GemmShape &other) const;
};

/// Returns the same product without strides that no element depends on: those
/// of a single row or column.
GemmShape withFixedStrides(GemmShape shape);
/// Returns the product of dense copies of the operands, in f32 if `widen`. Each
/// keeps its order, since copies do not transpose. If the result is copied too,
/// the copy adds it to the destination, and the product does not.
GemmShape denseShape(const GemmShape &shape, bool widen);

/// Returns the pieces of as many columns in which B is best read, or 1. Rows of
/// B that are far apart share sets of the cache and each need a page of their
/// own, so panels of many f32 columns are copied first. oneDNN 2.6 does so only
/// if n is a power of two; for n of 3072 it runs at a third of its speed. As a
/// batch of powers of two, the same product has the same bits.
int64_t columnPieces(const GemmShape &shape);

// ---- matrix products ----

/// Extents of the chunks that a product is cut into.
struct MatmulGrid {
  int64_t rows, columns;
};
/// `plan` must have passed checkShape.
MatmulGrid gridOf(const MatmulPlan &plan);
/// Returns the product of one batch entry. Fails if the host has none of the
/// plan's types, or none with a bias.
Result<GemmShape> productOf(const MatmulPlan &plan);
/// Returns the chunk at a row and a column of `whole`.
GemmShape chunkOf(const GemmShape &whole, MatmulGrid grid, int64_t row,
                  int64_t column);

// ---- convolutions ----

/// A convolution of few channels per group, computed without a matrix: each
/// element of the result is a sum over taps, which are the (channel, kernel
/// cell) pairs of its group. Matrix products of so few rows would run at a
/// fraction of their speed. The gradient of the input is such a convolution of
/// dy with the turned kernel, if the strides are 1.
///
/// Rows of the image that a block reads are copied between zeros, with columns
/// sorted by phase (their remainder modulo the stride), so that the elements of
/// a tap for adjacent results are adjacent.
struct DirectConvolution {
  /// The sizes of one group. `pads` are zeros before the first row and column;
  /// negative ones cut rows and columns off.
  int64_t channels, height, width, filters, outHeight, outWidth;
  int64_t kernel[2], strides[2], dilations[2], pads[2];

  /// Results that are computed side by side.
  static constexpr int64_t lanes = 32;

  int64_t taps() const { return channels * kernel[0] * kernel[1]; }
  /// Rows of the image that `count` rows of results read.
  int64_t rowsFor(int64_t count) const {
    return (count - 1) * strides[0] + (kernel[0] - 1) * dilations[0] + 1;
  }
  int64_t phaseLength() const {
    return roundUp(outWidth, lanes) +
           (kernel[1] - 1) * dilations[1] / strides[1];
  }
  int64_t rowLength() const { return strides[1] * phaseLength(); }
};

/// The windows of an image as a matrix of (channel, kernel cell) × (output
/// cell), built block by block: blocks of output rows in the forward, of
/// channels in the gradients.
struct ConvolutionCut {
  struct Block {
    int64_t begin, count;
  };
  ConvolutionPlan plan;
  ElementType type = ElementType::f32;
  int64_t groupChannels = 0, groupFilters = 0, kernelCells = 0, outCells = 0;
  bool pointwise =
      false; ///< 1×1, stride 1, no padding: the image is the matrix
  bool turned =
      false; ///< weights: the sum over images is the result transposed
  /// If set, blocks are of rows of the result (of dy, for weights), no product
  /// is made, and the matrix is the copied rows, the weights in the order of
  /// the taps, and for weights the block of dy.
  std::optional<DirectConvolution> direct;
  std::vector<Block> blocks;
  /// Scratch of a thread besides that of the products.
  int64_t matrixBytes = 0, sumBytes = 0;

  /// Elements from one row of the matrix of `rows` output rows to the next.
  int64_t windowsStride(int64_t rows) const {
    return pointwise ? outCells : rows * plan.outWidth;
  }
  /// The product of a block. `again` adds to the result of an earlier image;
  /// only gradients of weights have it.
  GemmShape productOf(const Block &block, bool again) const;
};
Result<ConvolutionCut> cutConvolution(const ConvolutionPlan &plan);

/// The columns of an image, sorted by their remainder modulo the stride:
/// `count` phases with any column, of up to `width` columns each.
struct Phases {
  int64_t count, width;
};
Phases phasesOf(const ConvolutionPlan &plan);

// ---- attention ----

/// Row stride of a block's scores and weights, in elements: a multiple of 16,
/// so that rows begin at vector boundaries.
inline int64_t scoresStride(int64_t keys) { return (keys + 15) / 16 * 16; }

struct AttentionCut {
  /// Queries [begin, begin + rows), of which none sees a key from `keys` on.
  struct Block {
    int64_t begin, rows, keys;
  };
  AttentionPlan plan;
  ElementType type = ElementType::f32;
  /// If true, dkey and dvalue are summed in dense f32 scratch and copied at the
  /// end. Products that add to rows with gaps run at half the speed.
  bool sumsApart = false;
  std::vector<Block> blocks;
  /// Scratch of a thread besides that of the products.
  int64_t scoresBytes = 0, weightsBytes = 0, sumBytes[2] = {0, 0};
  int64_t ownScratch() const {
    return (plan.backward ? 2 : 1) * (scoresBytes + weightsBytes) +
           sumBytes[0] + sumBytes[1];
  }

  /// The products of a block. Those of dkey and dvalue overwrite a sum, or add
  /// to it.
  GemmShape scores(const Block &block) const;
  GemmShape output(const Block &block) const;
  GemmShape dweights(const Block &block) const;
  GemmShape dquery(const Block &block) const;
  GemmShape dkey(const Block &block, bool add) const;
  GemmShape dvalue(const Block &block, bool add) const;
};
/// `plan` must have passed checkShape.
Result<AttentionCut> cutAttention(const AttentionPlan &plan);

} // namespace fsdpc

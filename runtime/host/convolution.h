// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolution and its two gradients on the host: the windows are laid out as a
// matrix (im2col) in scratch memory that fits the caches, then multiplied.
// Groups of few channels are summed directly (direct_convolution.h). The blocks
// follow from the shape alone, so the number of threads changes no bit.
#pragma once

#include "runtime/host/direct_convolution.h"
#include "runtime/host/matmul.h"

#include <optional>

namespace fsdpc::runtime {

class Convolution {
public:
  /// Prepares for a plan. Fails if it cannot be run. `cache` may be shared with
  /// other plans, and is not needed afterwards.
  Status plan(const ConvolutionPlan &plan, GemmCache &cache);
  /// Bytes of scratch that each thread needs.
  size_t scratchBytes() const;
  /// Creates the primitives; needed before `run` only.
  void prepare();
  /// Operands as ConvolutionPlan's kind says. Blocks until all is done.
  /// `scratch` has scratchBytes() per thread of the pool.
  void run(ThreadPool &pool, const Scratch &scratch, const void *x,
           const void *w, void *y) const;

private:
  /// A block of the cut with the products for it. `first` overwrites the
  /// result, `again` adds to it.
  struct Block : ConvolutionCut::Block {
    std::shared_ptr<Gemm> first, again;
  };
  /// The work of one thread at a time: one block of one image and group.
  struct Unit {
    const Block *block;
    int64_t image, group;
  };

  void runForward(const Unit &unit, int thread, char *scratch, const char *x,
                  const char *w, char *y) const;
  void runInput(const Unit &unit, int thread, char *scratch, const char *dy,
                const char *w, char *dx) const;
  void runWeight(const Unit &unit, int thread, char *scratch, const char *x,
                 const char *dy, char *dw) const;
  void writePlane(float *sums, char *to) const;
  void writeWeights(float *sum, int64_t columns, char *to) const;
  /// Returns the windows of channels [channel, channel + count) and output rows
  /// [row, row + rows) as a matrix of (channel, kernel cell) × (output cell).
  /// It is written to `matrix`, or is the image itself if that already is the
  /// matrix.
  const char *windows(const char *image, int64_t channel, int64_t count,
                      int64_t row, int64_t rows, char *matrix) const;

  void runDirect(const Unit &unit, char *scratch, const char *x, const char *w,
                 char *y) const;
  ConvolutionCut cut;
  std::optional<DirectKernel> direct; ///< for cuts without products
  int64_t bytes = 4;                  ///< per element
  std::vector<Block> blocks;
  size_t gemmScratch = 0;
};

} // namespace fsdpc::runtime

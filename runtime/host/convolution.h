// Convolution and its two gradients on the host: the windows are laid out as a
// matrix (im2col) in scratch memory that fits the caches, then multiplied. The
// blocks follow from the shape alone, so the number of threads changes no bit.
#pragma once

#include "runtime/host/matmul.h"

namespace fsdpc::runtime {

class Convolution {
public:
  // Prepares for a plan. Fails if it cannot be run.
  Status plan(const ConvolutionPlan &plan, GemmCache &cache);
  // Bytes of scratch that each thread needs.
  size_t scratchBytes() const;
  void prepare();
  // Operands as ConvolutionPlan's kind says.
  void run(ThreadPool &pool, const Scratch &scratch, const void *x,
           const void *w, void *y) const;

private:
  // A block of the channels of a group (gradients) or of output rows (forward),
  // with the products for it. `first` overwrites the result, `again` adds to
  // it.
  struct Block {
    int64_t begin, count;
    std::shared_ptr<Gemm> first, again;
  };
  // The work of one thread at a time: one block of one image and group.
  struct Unit {
    const Block *block;
    int64_t image, group;
  };

  Status planBlocks(GemmCache &cache);
  Status planForward(GemmCache &cache);
  Status planInput(GemmCache &cache);
  Status planWeight(GemmCache &cache);
  int64_t channelsPerBlock(int64_t images) const;
  void runForward(const Unit &unit, int thread, char *scratch, const char *x,
                  const char *w, char *y) const;
  void runInput(const Unit &unit, int thread, char *scratch, const char *dy,
                const char *w, char *dx) const;
  void runWeight(const Unit &unit, int thread, char *scratch, const char *x,
                 const char *dy, char *dw) const;
  // Returns the windows of channels [channel, channel + count) and output rows
  // [row, row + rows) as a matrix of (channel, kernel cell) × (output cell). It
  // is written to `matrix`, or is the image itself if that already is the
  // matrix.
  const char *windows(const char *image, int64_t channel, int64_t count,
                      int64_t row, int64_t rows, char *matrix) const;
  int64_t windowsStride(int64_t rows) const;

  ConvolutionPlan conv;
  ElementType type = ElementType::f32;
  int64_t bytes = 4; // per element
  int64_t groupChannels = 0, groupFilters = 0, kernelCells = 0, outCells = 0;
  bool pointwise = false; // 1×1, stride 1, no padding
  std::vector<Block> blocks;
  size_t gemmScratch = 0, matrixBytes = 0, sumBytes = 0;
};

} // namespace fsdpc::runtime

// Runs convolutions (convolution.h) on the blocks that host_convolution.cpp
// cuts: lays out the windows of an image as a matrix (im2col), multiplies, and
// in the gradient of the input adds the windows back to the image (col2im).
#include "runtime/host/convolution.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

namespace {

size_t roundUp64(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Writes one row of the window matrix: kernel cell (ki, kj) of a plane, for
// output rows [row, row + rows). It copies bits, so T stands for the element's
// width only. An output row is outWidth cells, of which those outside the plane
// read zeros.
template <typename T>
void windowRow(const ConvolutionPlan &c, const T *plane, int64_t ki, int64_t kj,
               int64_t row, int64_t rows, T *out) {
  int64_t shift = kj * c.dilations[1] - c.padsBegin[1], step = c.strides[1];
  // Output columns [begin, end) read from the plane, the others from the
  // padding. ceil(-shift / step) and ceil((width - shift) / step), kept within
  // the row.
  int64_t begin =
      shift < 0 ? std::min(c.outWidth, (-shift + step - 1) / step) : 0;
  int64_t end =
      shift < c.width
          ? std::clamp((c.width - shift + step - 1) / step, begin, c.outWidth)
          : begin;
  for (int64_t i = row; i < row + rows; ++i, out += c.outWidth) {
    int64_t y = i * c.strides[0] + ki * c.dilations[0] - c.padsBegin[0];
    // The whole row of the kernel cell lies in the padding.
    if (y < 0 || y >= c.height) {
      std::fill(out, out + c.outWidth, T(0));
      continue;
    }
    const T *from = plane + y * c.width + shift;
    std::fill(out, out + begin, T(0));
    if (step == 1)
      std::copy(from + begin, from + end, out + begin);
    else
      for (int64_t j = begin; j < end; ++j)
        out[j] = from[j * step];
    std::fill(out + end, out + c.outWidth, T(0));
  }
}

// Adds the rows of the window matrix for one channel back to the plane
// (col2im). Overwrites what the plane held.
void addWindows(const ConvolutionPlan &c, const float *matrix, float *plane) {
  std::fill(plane, plane + c.height * c.width, 0.0f);
  int64_t cells = c.outHeight * c.outWidth;
  for (int64_t ki = 0; ki < c.kernelHeight; ++ki)
    for (int64_t kj = 0; kj < c.kernelWidth; ++kj, matrix += cells)
      for (int64_t i = 0; i < c.outHeight; ++i) {
        // Which windows cover a cell follows from the loops; the order of
        // additions is fixed by them.
        int64_t y = i * c.strides[0] + ki * c.dilations[0] - c.padsBegin[0];
        if (y < 0 || y >= c.height)
          continue;
        for (int64_t j = 0; j < c.outWidth; ++j) {
          int64_t x = j * c.strides[1] + kj * c.dilations[1] - c.padsBegin[1];
          if (x >= 0 && x < c.width)
            plane[y * c.width + x] += matrix[i * c.outWidth + j];
        }
      }
}

} // namespace

// The scratch is that of the products, then a block's window matrix, then its
// f32 sums. A weight gradient has two products per block: one overwrites the
// sum, for the first image, and one adds to it.
Status Convolution::plan(const ConvolutionPlan &p, GemmCache &cache) {
  auto found = cutConvolution(p);
  FSDPC_TRY(found);
  cut = std::move(*found);
  bytes = elementBytes(cut.type);
  for (const ConvolutionCut::Block &part : cut.blocks) {
    Block block{part, nullptr, nullptr};
    auto first = cache.get(cut.productOf(part, false));
    FSDPC_TRY(first);
    block.first = *first;
    if (p.kind == "weight") {
      auto again = cache.get(cut.productOf(part, true));
      FSDPC_TRY(again);
      block.again = *again;
    }
    for (const std::shared_ptr<Gemm> &gemm : {block.first, block.again})
      if (gemm)
        gemmScratch = std::max(gemmScratch, roundUp64(gemm->scratchBytes()));
    blocks.push_back(block);
  }
  return {};
}

size_t Convolution::scratchBytes() const {
  return gemmScratch + size_t(cut.matrixBytes + cut.sumBytes);
}

void Convolution::prepare() {
  for (Block &block : blocks)
    for (const std::shared_ptr<Gemm> &gemm : {block.first, block.again})
      if (gemm)
        gemm->prepare();
}

// A 1×1 convolution without strides or padding needs no matrix.
const char *Convolution::windows(const char *image, int64_t channel,
                                 int64_t count, int64_t row, int64_t rows,
                                 char *matrix) const {
  int64_t plane = cut.plan.height * cut.plan.width;
  if (cut.pointwise)
    return image + (channel * plane + row * cut.plan.outWidth) * bytes;
  char *out = matrix;
  for (int64_t c = channel; c < channel + count; ++c)
    for (int64_t ki = 0; ki < cut.plan.kernelHeight; ++ki)
      for (int64_t kj = 0; kj < cut.plan.kernelWidth; ++kj) {
        const char *from = image + c * plane * bytes;
        // Padding is zero in both types, whose zero is all bits zero.
        if (bytes == 4)
          windowRow(cut.plan, reinterpret_cast<const uint32_t *>(from), ki, kj,
                    row, rows, reinterpret_cast<uint32_t *>(out));
        else
          windowRow(cut.plan, reinterpret_cast<const uint16_t *>(from), ki, kj,
                    row, rows, reinterpret_cast<uint16_t *>(out));
        out += rows * cut.plan.outWidth * bytes;
      }
  return matrix;
}

// y block = weights · windows, for some output rows of one image and group.
void Convolution::runForward(const Unit &u, int thread, char *scratch,
                             const char *x, const char *w, char *y) const {
  // First channel and filter of the unit, counted over the batch.
  int64_t channel = (u.image * cut.plan.groups + u.group) * cut.groupChannels;
  int64_t filter = (u.image * cut.plan.groups + u.group) * cut.groupFilters;
  const char *matrix = windows(x, channel, cut.groupChannels, u.block->begin,
                               u.block->count, scratch + gemmScratch);
  u.block->first->run(
      thread,
      w + u.group * cut.groupFilters * cut.groupChannels * cut.kernelCells *
              bytes,
      matrix,
      y + (filter * cut.outCells + u.block->begin * cut.plan.outWidth) * bytes,
      scratch);
}

// windows = weightsᵀ · dy for some channels, then col2im into dx.
void Convolution::runInput(const Unit &u, int thread, char *scratch,
                           const char *dy, const char *w, char *dx) const {
  int64_t plane = cut.plan.height * cut.plan.width;
  int64_t filter = (u.image * cut.plan.groups + u.group) * cut.groupFilters;
  int64_t channel = (u.image * cut.plan.groups + u.group) * cut.groupChannels +
                    u.block->begin;
  int64_t weight =
      (u.group * cut.groupFilters * cut.groupChannels + u.block->begin) *
      cut.kernelCells;
  float *matrix = reinterpret_cast<float *>(scratch + gemmScratch);
  // Each unit owns its channels of dx, so no two threads add to one plane.
  float *sum =
      reinterpret_cast<float *>(scratch + gemmScratch + cut.matrixBytes);
  u.block->first->run(thread, w + weight * bytes,
                      dy + filter * cut.outCells * bytes, matrix, scratch);
  for (int64_t c = 0; c < u.block->count; ++c) {
    char *to = dx + (channel + c) * plane * bytes;
    const float *rows = matrix + c * cut.kernelCells * cut.outCells;
    if (cut.type == ElementType::f32) {
      addWindows(cut.plan, rows, reinterpret_cast<float *>(to));
    } else {
      addWindows(cut.plan, rows, sum);
      roundFloats(sum, plane, cut.type, to);
    }
  }
}

// dw block = Σ over images of dy · windowsᵀ. The first image overwrites, the
// others add.
void Convolution::runWeight(const Unit &u, int thread, char *scratch,
                            const char *x, const char *dy, char *dw) const {
  int64_t depth = cut.groupChannels * cut.kernelCells;
  int64_t columns = u.block->count * cut.kernelCells;
  char *to = dw + (u.group * cut.groupFilters * depth +
                   u.block->begin * cut.kernelCells) *
                      bytes;
  // f32 results are summed where they lie.
  char *sum = cut.type == ElementType::f32
                  ? to
                  : scratch + gemmScratch + cut.matrixBytes;
  // All images of a block run on one thread, which fixes the order of the sum.
  for (int64_t image = 0; image < cut.plan.batch; ++image) {
    int64_t channel = (image * cut.plan.groups + u.group) * cut.groupChannels +
                      u.block->begin;
    int64_t filter = (image * cut.plan.groups + u.group) * cut.groupFilters;
    const char *matrix = windows(x, channel, u.block->count, 0,
                                 cut.plan.outHeight, scratch + gemmScratch);
    (image ? u.block->again : u.block->first)
        ->run(thread, dy + filter * cut.outCells * bytes, matrix, sum, scratch);
  }
  if (cut.type != ElementType::f32)
    for (int64_t i = 0; i < cut.groupFilters; ++i)
      roundFloats(reinterpret_cast<float *>(sum) + i * columns, columns,
                  cut.type, to + i * depth * bytes);
}

// Cuts the work into (image, group, block), the block fastest, so that
// neighbouring pieces read the same image.
void Convolution::run(ThreadPool &pool, const Scratch &scratch, const void *x,
                      const void *w, void *y) const {
  bool weight = cut.plan.kind == "weight", forward = cut.plan.kind == "forward";
  const char *a = static_cast<const char *>(x);
  const char *b = static_cast<const char *>(w);
  char *c = static_cast<char *>(y);
  int64_t images = weight ? 1 : cut.plan.batch;
  int64_t count = blocks.size();
  pool.run(images * cut.plan.groups * count, [&](int64_t piece, int thread) {
    Unit unit{&blocks[piece % count], piece / count / cut.plan.groups,
              piece / count % cut.plan.groups};
    char *work = static_cast<char *>(scratch.of(thread));
    if (weight)
      runWeight(unit, thread, work, a, b, c);
    else if (forward)
      runForward(unit, thread, work, a, b, c);
    else
      runInput(unit, thread, work, a, b, c);
  });
}

} // namespace fsdpc::runtime

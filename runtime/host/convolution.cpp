// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs convolutions (convolution.h) on the blocks that host_convolution.cpp
// cuts: lays out the windows of an image as a matrix (im2col), multiplies, and
// in the gradient of the input adds the windows back to the image (col2im).
#include "runtime/host/convolution.h"
#include "runtime/numeric/each_processor.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <cstring>

// Runs of zeros at the ends of rows are short: a call of memset, which clang
// makes of the loop, would take longer.
#if defined(__clang__)
#define FSDPC_NO_MEMSET __attribute__((no_builtin("memset")))
#else
#define FSDPC_NO_MEMSET
#endif

namespace fsdpc::runtime {

namespace {

// Writes one row of the window matrix: kernel cell (ki, kj) of a plane, for
// output rows [row, row + rows). It copies bits, so T stands for the element's
// width only. An output row is outWidth cells, of which those outside the plane
// read zeros.
template <typename T>
FSDPC_NO_MEMSET void windowRow(const ConvolutionPlan &c, const T *plane,
                               int64_t ki, int64_t kj, int64_t row,
                               int64_t rows, T *out) {
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
  // Rows of an unstrided window as wide as the image follow each other in both:
  // one copy, and zeros where it has run into a neighbouring row.
  int64_t above = c.padsBegin[0] - ki * c.dilations[0];
  if (step == 1 && c.strides[0] == 1 && c.outWidth == c.width && begin < end) {
    int64_t first = std::clamp(above, row, row + rows);
    int64_t last = std::clamp(c.height + above, first, row + rows);
    std::fill(out, out + (first - row) * c.width, T(0));
    std::fill(out + (last - row) * c.width, out + rows * c.width, T(0));
    if (first == last)
      return;
    T *to = out + (first - row) * c.width;
    const T *from = plane + (first - above) * c.width + shift;
    std::copy(from + begin, from + (last - first - 1) * c.width + end,
              to + begin);
    for (int64_t i = first; i < last; ++i, to += c.width) {
      std::fill(to, to + begin, T(0));
      std::fill(to + end, to + c.width, T(0));
    }
    return;
  }
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
    else if (step == 2) // a constant, which becomes shuffles
      for (int64_t j = begin; j < end; ++j)
        out[j] = from[j * 2];
    else
      for (int64_t j = begin; j < end; ++j)
        out[j] = from[j * step];
    std::fill(out + end, out + c.outWidth, T(0));
  }
}

// Columns of an image that windows of one kernel column cover lie a stride
// apart, so additions to them would not be vectors. Rows are therefore summed
// with their columns sorted by phase, which is the column modulo the stride
// (phasesOf, in the cut).
// Adds the rows of the window matrix for one channel up (col2im). `sums` holds
// a row of each phase per row of the plane, and is overwritten. Each cell adds
// its windows in the order of kernel cells, whatever the stride.
FSDPC_EACH_PROCESSOR void addWindows(const ConvolutionPlan &c,
                                     const float *matrix, float *sums) {
  auto [phases, width] = phasesOf(c);
  int64_t stride = c.strides[1];
  std::fill(sums, sums + c.height * phases * width, 0.0f);
  int64_t cells = c.outHeight * c.outWidth;
  for (int64_t ki = 0; ki < c.kernelHeight; ++ki)
    for (int64_t kj = 0; kj < c.kernelWidth; ++kj, matrix += cells) {
      // Output column j covers column j · stride + shift of the plane.
      int64_t shift = kj * c.dilations[1] - c.padsBegin[1];
      int64_t phase = (shift % stride + stride) % stride;
      int64_t first = (shift - phase) / stride;
      int64_t last = (c.width - 1 - phase) / stride;
      int64_t begin = std::max<int64_t>(0, -first);
      int64_t end =
          c.width > phase ? std::min(c.outWidth, last - first + 1) : begin;
      for (int64_t i = 0; i < c.outHeight; ++i) {
        int64_t y = i * c.strides[0] + ki * c.dilations[0] - c.padsBegin[0];
        if (y < 0 || y >= c.height)
          continue;
        float *to = sums + (y * phases + phase) * width + first;
        const float *from = matrix + i * c.outWidth;
        for (int64_t j = begin; j < end; ++j)
          to[j] += from[j];
      }
    }
}

// Puts the columns of one row of sums in order.
FSDPC_EACH_PROCESSOR void mergePhases(const ConvolutionPlan &c,
                                      const float *sums, float *row) {
  int64_t width = phasesOf(c).width, stride = c.strides[1];
  // The usual stride as a constant, which becomes shuffles.
  if (stride == 2)
    for (int64_t j = 0; j < c.width / 2; ++j) {
      row[2 * j] = sums[j];
      row[2 * j + 1] = sums[width + j];
    }
  for (int64_t j = stride == 2 ? c.width / 2 * 2 : 0; j < c.width; ++j)
    row[j] = sums[j % stride * width + j / stride];
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
  if (cut.direct) {
    direct.emplace(cut);
    for (const ConvolutionCut::Block &part : cut.blocks)
      blocks.push_back({part, nullptr, nullptr});
    return {};
  }
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

// Writes a plane of dx whose rows of sums addWindows has left. The row that is
// being written follows the sums.
void Convolution::writePlane(float *sums, char *to) const {
  int64_t width = cut.plan.width, stride = cut.plan.strides[1];
  int64_t sumsWidth = phasesOf(cut.plan).count * phasesOf(cut.plan).width;
  float *merged = sums + cut.plan.height * sumsWidth;
  for (int64_t y = 0; y < cut.plan.height; ++y, to += width * bytes) {
    float *row = sums + y * sumsWidth;
    bool isF32 = cut.type == ElementType::f32;
    if (stride > 1) {
      mergePhases(cut.plan, row,
                  isF32 ? reinterpret_cast<float *>(to) : merged);
      row = merged;
    }
    if (!isF32)
      roundFloats(row, width, cut.type, to);
  }
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
    bool isPlane = cut.type == ElementType::f32 && cut.plan.strides[1] == 1;
    addWindows(cut.plan, rows, isPlane ? reinterpret_cast<float *>(to) : sum);
    if (!isPlane)
      writePlane(sum, to);
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
  // f32 results are summed where they lie, if they are not turned.
  bool inPlace = cut.type == ElementType::f32 && !cut.turned;
  char *sum = inPlace ? to : scratch + gemmScratch + cut.matrixBytes;
  // All images of a block run on one thread, which fixes the order of the sum.
  for (int64_t image = 0; image < cut.plan.batch; ++image) {
    int64_t channel = (image * cut.plan.groups + u.group) * cut.groupChannels +
                      u.block->begin;
    int64_t filter = (image * cut.plan.groups + u.group) * cut.groupFilters;
    const char *slopes = dy + filter * cut.outCells * bytes;
    const char *matrix = windows(x, channel, u.block->count, 0,
                                 cut.plan.outHeight, scratch + gemmScratch);
    (image ? u.block->again : u.block->first)
        ->run(thread, cut.turned ? matrix : slopes,
              cut.turned ? slopes : matrix, sum, scratch);
  }
  if (!inPlace)
    writeWeights(reinterpret_cast<float *>(sum), columns, to);
}

// Writes the sums of a block's weights, `columns` per filter, to the rows of
// dw. The row that is being written follows turned sums.
void Convolution::writeWeights(float *sum, int64_t columns, char *to) const {
  int64_t depth = cut.groupChannels * cut.kernelCells;
  for (int64_t i = 0; i < cut.groupFilters; ++i, to += depth * bytes) {
    float *row = sum + i * columns;
    if (cut.turned) {
      row = cut.type == ElementType::f32 ? reinterpret_cast<float *>(to)
                                         : sum + cut.groupFilters * columns;
      for (int64_t j = 0; j < columns; ++j)
        row[j] = sum[j * cut.groupFilters + i];
    }
    if (cut.type != ElementType::f32)
      roundFloats(row, columns, cut.type, to);
  }
}

// Rows of the result of one image and group. For weights, all rows of dy and
// all images, which fixes the order of the sum.
void Convolution::runDirect(const Unit &u, char *scratch, const char *x,
                            const char *w, char *y) const {
  const float *a = reinterpret_cast<const float *>(x);
  const float *b = reinterpret_cast<const float *>(w);
  float *c = reinterpret_cast<float *>(y);
  float *work = reinterpret_cast<float *>(scratch);
  // Elements of one group of an image, of a result, and of the weights.
  int64_t image = cut.groupChannels * cut.plan.height * cut.plan.width;
  int64_t result = cut.groupFilters * cut.outCells;
  int64_t kernel = cut.groupFilters * cut.groupChannels * cut.kernelCells;
  if (cut.plan.kind != "weight") {
    if (cut.plan.kind == "input")
      std::swap(image, result);
    int64_t at = u.image * cut.plan.groups + u.group;
    direct->run(*u.block, a + at * image, b + u.group * kernel, c + at * result,
                work);
    return;
  }
  float *sum = c + u.group * kernel;
  std::fill(sum, sum + kernel, 0.0f);
  for (int64_t i = 0; i < cut.plan.batch; ++i) {
    int64_t at = i * cut.plan.groups + u.group;
    for (const Block &block : blocks)
      direct->addWeights(block, a + at * image, b + at * result, sum, work);
  }
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
  int64_t count = weight && direct ? 1 : blocks.size();
  pool.run(images * cut.plan.groups * count, [&](int64_t piece, int thread) {
    Unit unit{&blocks[piece % count], piece / count / cut.plan.groups,
              piece / count % cut.plan.groups};
    char *work = static_cast<char *>(scratch.of(thread));
    if (direct)
      runDirect(unit, work, a, b, c);
    else if (weight)
      runWeight(unit, thread, work, a, b, c);
    else if (forward)
      runForward(unit, thread, work, a, b, c);
    else
      runInput(unit, thread, work, a, b, c);
  });
}

} // namespace fsdpc::runtime

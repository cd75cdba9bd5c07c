// Plans and runs convolutions (convolution.h). forward: windows times weights,
// per block of output rows. input: weights transposed times dy gives windows,
// which are added back to the image (col2im). weight: dy times windows
// transposed, summed over the images in order.
//
// Sums of several products (images of a weight gradient, kernel cells of an
// input gradient) are kept in f32 and rounded to a 16-bit type once.
#include "runtime/host/convolution.h"
#include "shared/plan_shapes.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

namespace {

// Bound of a thread's window matrix: about half of a core's L2.
constexpr int64_t maxMatrixBytes = int64_t(1) << 20;
// Pieces of work that keep the threads of one rank busy.
constexpr int64_t wantedUnits = 16;

size_t roundUp64(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Writes one row of the window matrix: kernel cell (ki, kj) of a plane, for
// output rows [row, row + rows). It copies bits, so T stands for the element's
// width only.
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

// Makes the products of all blocks and adds up the scratch: that of the
// products, then a block's window matrix, then its f32 sums.
Status Convolution::plan(const ConvolutionPlan &p, GemmCache &cache) {
  conv = p;
  if (!parseElementType(p.dtype, type))
    return Error{"convolution of type '" + p.dtype + "' is not supported"};
  FSDPC_TRY(checkShape(p));
  bytes = elementBytes(type);
  groupChannels = p.channels / p.groups;
  groupFilters = p.filters / p.groups;
  kernelCells = p.kernelHeight * p.kernelWidth;
  outCells = p.outHeight * p.outWidth;
  // The window matrix is then the image itself.
  pointwise = kernelCells == 1 && p.strides[0] == 1 && p.strides[1] == 1 &&
              p.outHeight == p.height && p.outWidth == p.width &&
              p.padsBegin[0] == 0 && p.padsBegin[1] == 0;
  FSDPC_TRY(planBlocks(cache));
  for (const Block &block : blocks)
    for (const std::shared_ptr<Gemm> &gemm : {block.first, block.again})
      if (gemm)
        gemmScratch = std::max(gemmScratch, roundUp64(gemm->scratchBytes()));
  return {};
}

Status Convolution::planBlocks(GemmCache &cache) {
  if (conv.kind == "forward")
    return planForward(cache);
  if (conv.kind == "input")
    return planInput(cache);
  if (conv.kind == "weight")
    return planWeight(cache);
  return Error{"unknown convolution kind '" + conv.kind + "'"};
}

// Blocks of output rows: few enough rows for the matrix to fit, and enough
// blocks to keep the threads busy.
Status Convolution::planForward(GemmCache &cache) {
  int64_t depth = groupChannels * kernelCells;
  int64_t rows =
      std::max<int64_t>(maxMatrixBytes / (depth * conv.outWidth * bytes), 1);
  int64_t images = conv.batch * conv.groups;
  int64_t cuts = (wantedUnits + images - 1) / images;
  rows = std::min(rows, (conv.outHeight + cuts - 1) / cuts);
  for (int64_t row = 0; row < conv.outHeight; row += rows) {
    GemmShape s;
    int64_t count = std::min(rows, conv.outHeight - row);
    s.m = groupFilters;
    s.n = count * conv.outWidth;
    s.k = s.rowA = depth;
    s.rowB = windowsStride(count);
    s.rowC = outCells;
    s.a = s.b = s.c = type;
    auto gemm = cache.get(s);
    FSDPC_TRY(gemm);
    blocks.push_back({row, count, *gemm, nullptr});
  }
  matrixBytes = pointwise ? 0 : roundUp64(depth * rows * conv.outWidth * bytes);
  return {};
}

// Channels per block: as many as fit the bound in f32, but few enough that
// every thread gets work.
int64_t Convolution::channelsPerBlock(int64_t images) const {
  int64_t fit =
      std::max<int64_t>(maxMatrixBytes / (kernelCells * outCells * 4), 1);
  int64_t cuts = (wantedUnits + images - 1) / images;
  return std::min(fit, (groupChannels + cuts - 1) / cuts);
}

// The windows of a block of channels are f32, because col2im sums them. The
// weights are read transposed (columnA), without a copy: row stride 1.
Status Convolution::planInput(GemmCache &cache) {
  int64_t step = channelsPerBlock(conv.batch * conv.groups);
  for (int64_t channel = 0; channel < groupChannels; channel += step) {
    GemmShape s;
    int64_t count = std::min(step, groupChannels - channel);
    s.m = count * kernelCells;
    s.n = s.rowB = s.rowC = outCells;
    s.k = groupFilters;
    s.rowA = 1;
    s.columnA = groupChannels * kernelCells;
    s.a = s.b = type;
    auto gemm = cache.get(s);
    FSDPC_TRY(gemm);
    blocks.push_back({channel, count, *gemm, nullptr});
  }
  matrixBytes = roundUp64(step * kernelCells * outCells * 4);
  sumBytes =
      type == ElementType::f32 ? 0 : roundUp64(conv.height * conv.width * 4);
  return {};
}

// In a 16-bit type the sum over images is built in f32 scratch and rounded
// once. One product overwrites the sum, for the first image, and one adds to
// it. In f32 the sum is the result itself.
Status Convolution::planWeight(GemmCache &cache) {
  int64_t step = channelsPerBlock(conv.groups);
  for (int64_t channel = 0; channel < groupChannels; channel += step) {
    GemmShape s;
    int64_t count = std::min(step, groupChannels - channel);
    s.m = groupFilters;
    s.n = count * kernelCells;
    s.k = s.rowA = s.columnB = outCells;
    s.rowB = 1;
    s.rowC = type == ElementType::f32 ? groupChannels * kernelCells : s.n;
    s.a = s.b = type;
    auto first = cache.get(s);
    FSDPC_TRY(first);
    s.accumulate = true;
    auto again = cache.get(s);
    FSDPC_TRY(again);
    blocks.push_back({channel, count, *first, *again});
  }
  matrixBytes =
      pointwise ? 0 : roundUp64(step * kernelCells * outCells * bytes);
  sumBytes = type == ElementType::f32
                 ? 0
                 : roundUp64(groupFilters * step * kernelCells * 4);
  return {};
}

size_t Convolution::scratchBytes() const {
  return gemmScratch + matrixBytes + sumBytes;
}

void Convolution::prepare() {
  for (Block &block : blocks)
    for (const std::shared_ptr<Gemm> &gemm : {block.first, block.again})
      if (gemm)
        gemm->prepare();
}

// Elements from one row of the window matrix to the next.
int64_t Convolution::windowsStride(int64_t rows) const {
  return pointwise ? outCells : rows * conv.outWidth;
}

// A 1×1 convolution without strides or padding needs no matrix.
const char *Convolution::windows(const char *image, int64_t channel,
                                 int64_t count, int64_t row, int64_t rows,
                                 char *matrix) const {
  int64_t plane = conv.height * conv.width;
  if (pointwise)
    return image + (channel * plane + row * conv.outWidth) * bytes;
  char *out = matrix;
  for (int64_t c = channel; c < channel + count; ++c)
    for (int64_t ki = 0; ki < conv.kernelHeight; ++ki)
      for (int64_t kj = 0; kj < conv.kernelWidth; ++kj) {
        const char *from = image + c * plane * bytes;
        // Padding is zero in both types, whose zero is all bits zero.
        if (bytes == 4)
          windowRow(conv, reinterpret_cast<const uint32_t *>(from), ki, kj, row,
                    rows, reinterpret_cast<uint32_t *>(out));
        else
          windowRow(conv, reinterpret_cast<const uint16_t *>(from), ki, kj, row,
                    rows, reinterpret_cast<uint16_t *>(out));
        out += rows * conv.outWidth * bytes;
      }
  return matrix;
}

// y block = weights · windows, for some output rows of one image and group.
void Convolution::runForward(const Unit &u, int thread, char *scratch,
                             const char *x, const char *w, char *y) const {
  int64_t channel = (u.image * conv.groups + u.group) * groupChannels;
  int64_t filter = (u.image * conv.groups + u.group) * groupFilters;
  const char *matrix = windows(x, channel, groupChannels, u.block->begin,
                               u.block->count, scratch + gemmScratch);
  u.block->first->run(
      thread, w + u.group * groupFilters * groupChannels * kernelCells * bytes,
      matrix, y + (filter * outCells + u.block->begin * conv.outWidth) * bytes,
      scratch);
}

// windows = weightsᵀ · dy for some channels, then col2im into dx.
void Convolution::runInput(const Unit &u, int thread, char *scratch,
                           const char *dy, const char *w, char *dx) const {
  int64_t plane = conv.height * conv.width;
  int64_t filter = (u.image * conv.groups + u.group) * groupFilters;
  int64_t channel =
      (u.image * conv.groups + u.group) * groupChannels + u.block->begin;
  int64_t weight =
      (u.group * groupFilters * groupChannels + u.block->begin) * kernelCells;
  float *matrix = reinterpret_cast<float *>(scratch + gemmScratch);
  // Each unit owns its channels of dx, so no two threads add to one plane.
  float *sum = reinterpret_cast<float *>(scratch + gemmScratch + matrixBytes);
  u.block->first->run(thread, w + weight * bytes,
                      dy + filter * outCells * bytes, matrix, scratch);
  for (int64_t c = 0; c < u.block->count; ++c) {
    char *to = dx + (channel + c) * plane * bytes;
    const float *rows = matrix + c * kernelCells * outCells;
    if (type == ElementType::f32) {
      addWindows(conv, rows, reinterpret_cast<float *>(to));
    } else {
      addWindows(conv, rows, sum);
      roundFloats(sum, plane, type, to);
    }
  }
}

// dw block = Σ over images of dy · windowsᵀ. The first image overwrites, the
// others add.
void Convolution::runWeight(const Unit &u, int thread, char *scratch,
                            const char *x, const char *dy, char *dw) const {
  int64_t depth = groupChannels * kernelCells;
  int64_t columns = u.block->count * kernelCells;
  char *to =
      dw +
      (u.group * groupFilters * depth + u.block->begin * kernelCells) * bytes;
  char *sum =
      type == ElementType::f32 ? to : scratch + gemmScratch + matrixBytes;
  // All images of a block run on one thread, which fixes the order of the sum.
  for (int64_t image = 0; image < conv.batch; ++image) {
    int64_t channel =
        (image * conv.groups + u.group) * groupChannels + u.block->begin;
    int64_t filter = (image * conv.groups + u.group) * groupFilters;
    const char *matrix = windows(x, channel, u.block->count, 0, conv.outHeight,
                                 scratch + gemmScratch);
    (image ? u.block->again : u.block->first)
        ->run(thread, dy + filter * outCells * bytes, matrix, sum, scratch);
  }
  if (type != ElementType::f32)
    for (int64_t i = 0; i < groupFilters; ++i)
      roundFloats(reinterpret_cast<float *>(sum) + i * columns, columns, type,
                  to + i * depth * bytes);
}

// Cuts the work into (image, group, block), the block fastest, so that
// neighbouring pieces read the same image.
void Convolution::run(ThreadPool &pool, const Scratch &scratch, const void *x,
                      const void *w, void *y) const {
  bool weight = conv.kind == "weight", forward = conv.kind == "forward";
  const char *a = static_cast<const char *>(x);
  const char *b = static_cast<const char *>(w);
  char *c = static_cast<char *>(y);
  int64_t images = weight ? 1 : conv.batch;
  int64_t count = blocks.size();
  pool.run(images * conv.groups * count, [&](int64_t piece, int thread) {
    Unit unit{&blocks[piece % count], piece / count / conv.groups,
              piece / count % conv.groups};
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

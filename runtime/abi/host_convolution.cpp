// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The cuts of convolutions on the host (host_products.h). forward: windows
// times weights, per block of output rows. input: weights transposed times dy
// gives windows, which are added back to the image. weight: dy times windows
// transposed, summed over the images in order.
//
// Sums of several products (images of a weight gradient, kernel cells of an
// input gradient) are kept in f32 and rounded to a 16-bit type once.
#include "runtime/abi/host_products.h"
#include "runtime/abi/plan_shapes.h"
#include "runtime/support/round_up.h"

#include <algorithm>

namespace fsdpc {

namespace {

// Bound of a thread's window matrix: about half of a core's L2.
constexpr int64_t maxMatrixBytes = int64_t(1) << 20;
// Pieces of work that keep the threads of one rank busy.
constexpr int64_t wantedUnits = 16;

// The most blocks that are listed. Only extents that no machine could compute
// with have more.
constexpr int64_t mostBlocks = int64_t(1) << 16;

// Returns the least step, from `step` on, that makes few enough blocks.
int64_t longEnough(int64_t extent, int64_t step) {
  return std::max(step, (extent + mostBlocks - 1) / mostBlocks);
}

// Cuts [0, extent) into blocks of `step`.
void cut(ConvolutionCut &c, int64_t extent, int64_t step) {
  for (int64_t begin = 0; begin < extent; begin += step)
    c.blocks.push_back({begin, std::min(step, extent - begin)});
}

// Blocks of output rows: few enough rows for the matrix to fit, and enough
// blocks to keep the threads busy.
void cutForward(ConvolutionCut &c) {
  const ConvolutionPlan &p = c.plan;
  int64_t depth = c.groupChannels * c.kernelCells, bytes = elementBytes(c.type);
  int64_t rows =
      std::max<int64_t>(maxMatrixBytes / (depth * p.outWidth * bytes), 1);
  int64_t images = p.batch * p.groups;
  int64_t cuts = (wantedUnits + images - 1) / images;
  rows =
      longEnough(p.outHeight, std::min(rows, (p.outHeight + cuts - 1) / cuts));
  cut(c, p.outHeight, rows);
  c.matrixBytes =
      c.pointwise ? 0 : roundUp64(depth * rows * p.outWidth * bytes);
}

// Channels per block: as many as fit the bound in f32, but few enough that
// every thread gets work. Products of fewer columns than a panel of B has run
// at a fraction of their speed, which more threads do not make up for.
int64_t channelsPerBlock(const ConvolutionCut &c, int64_t images) {
  int64_t fit =
      std::max<int64_t>(maxMatrixBytes / (c.kernelCells * c.outCells * 4), 1);
  int64_t cuts = (wantedUnits + images - 1) / images;
  constexpr int64_t panel = 32;
  int64_t step = std::max((c.groupChannels + cuts - 1) / cuts,
                          (panel + c.kernelCells - 1) / c.kernelCells);
  return longEnough(c.groupChannels, std::min({fit, step, c.groupChannels}));
}

// The windows of a block of channels are f32, because col2im sums them.
void cutInput(ConvolutionCut &c) {
  const ConvolutionPlan &p = c.plan;
  int64_t step = channelsPerBlock(c, p.batch * p.groups);
  cut(c, c.groupChannels, step);
  c.matrixBytes = roundUp64(step * c.kernelCells * c.outCells * 4);
  // A plane of dx in phases and in f32, and a row of it in order.
  Phases phases = phasesOf(p);
  bool sumsInPlace = c.type == ElementType::f32 && p.strides[1] == 1;
  c.sumBytes =
      sumsInPlace
          ? 0
          : roundUp64((p.height * phases.count * phases.width + p.width) * 4);
}

// In a 16-bit type the sum over images is built in f32 scratch and rounded
// once. In f32 the sum is the result itself, unless it is turned: windows ·
// dyᵀ is the product that copies the smaller operand to transpose it.
void cutWeight(ConvolutionCut &c) {
  int64_t step = channelsPerBlock(c, c.plan.groups);
  cut(c, c.groupChannels, step);
  int64_t columns = step * c.kernelCells;
  c.matrixBytes =
      c.pointwise ? 0 : roundUp64(columns * c.outCells * elementBytes(c.type));
  c.turned = c.groupFilters < columns;
  // A turned sum is followed by a row of it.
  int64_t rows = c.groupFilters + (c.turned ? 1 : 0);
  c.sumBytes = c.type == ElementType::f32 && !c.turned
                   ? 0
                   : roundUp64(rows * columns * 4);
}

// More channels or filters per group than this are fast enough as products.
constexpr int64_t mostDirect = 8;
// Bounds of what direct convolutions are used for; larger kernels and strides
// are rare.
constexpr int64_t mostKernel = 32, mostStride = 4, mostDilation = 32;

bool isDirect(const ConvolutionCut &c) {
  const ConvolutionPlan &p = c.plan;
  bool unstrided = p.strides[0] == 1 && p.strides[1] == 1;
  return c.type == ElementType::f32 && p.groups > 1 && c.kernelCells > 1 &&
         c.groupChannels <= mostDirect && c.groupFilters <= mostDirect &&
         std::max(p.kernelHeight, p.kernelWidth) <= mostKernel &&
         std::max(p.strides[0], p.strides[1]) <= mostStride &&
         std::max(p.dilations[0], p.dilations[1]) <= mostDilation &&
         (p.kind != "input" || unstrided);
}

// Returns the convolution of one group. It reads the image, or for "input" dy,
// whose convolution with the turned kernel is dx.
DirectConvolution directOf(const ConvolutionCut &c) {
  const ConvolutionPlan &p = c.plan;
  DirectConvolution d{c.groupChannels,
                      p.height,
                      p.width,
                      c.groupFilters,
                      p.outHeight,
                      p.outWidth,
                      {p.kernelHeight, p.kernelWidth},
                      {p.strides[0], p.strides[1]},
                      {p.dilations[0], p.dilations[1]},
                      {p.padsBegin[0], p.padsBegin[1]}};
  if (p.kind != "input")
    return d;
  std::swap(d.channels, d.filters);
  std::swap(d.height, d.outHeight);
  std::swap(d.width, d.outWidth);
  for (int axis : {0, 1})
    d.pads[axis] = (d.kernel[axis] - 1) * d.dilations[axis] - d.pads[axis];
  return d;
}

// Blocks of rows whose copies fit the first cache levels. All blocks and images
// of a weight gradient are one thread's.
void cutDirect(ConvolutionCut &c) {
  const DirectConvolution &d = *c.direct;
  constexpr int64_t most = int64_t(1) << 16;
  auto bytesOf = [&](int64_t rows) {
    int64_t dy =
        c.plan.kind == "weight" ? d.filters * rows * (d.outWidth + d.lanes) : 0;
    return roundUp64((d.channels * d.rowsFor(rows) * d.rowLength() +
                      d.filters * d.taps() + dy) *
                     4);
  };
  int64_t rows = d.outHeight;
  while (rows > 4 && bytesOf(rows) > most)
    rows = (rows + 1) / 2;
  rows = longEnough(d.outHeight, rows);
  cut(c, d.outHeight, rows);
  c.matrixBytes = bytesOf(rows);
}

} // namespace

Phases phasesOf(const ConvolutionPlan &p) {
  int64_t stride = p.strides[1];
  return {std::min(stride, p.width), (p.width + stride - 1) / stride};
}

Result<ConvolutionCut> cutConvolution(const ConvolutionPlan &p) {
  ConvolutionCut c;
  c.plan = p;
  if (!parseElementType(p.dtype, c.type))
    return inputError("convolution of type '" + p.dtype + "' is not supported");
  FSDPC_TRY(checkShape(p));
  c.groupChannels = p.channels / p.groups;
  c.groupFilters = p.filters / p.groups;
  c.kernelCells = p.kernelHeight * p.kernelWidth;
  c.outCells = p.outHeight * p.outWidth;
  c.pointwise = c.kernelCells == 1 && p.strides[0] == 1 && p.strides[1] == 1 &&
                p.outHeight == p.height && p.outWidth == p.width &&
                p.padsBegin[0] == 0 && p.padsBegin[1] == 0;
  if (p.kind != "forward" && p.kind != "input" && p.kind != "weight")
    return inputError("unknown convolution kind '" + p.kind + "'");
  if (isDirect(c)) {
    c.direct = directOf(c);
    cutDirect(c);
    return c;
  }
  if (p.kind == "forward")
    cutForward(c);
  else if (p.kind == "input")
    cutInput(c);
  else
    cutWeight(c);
  return c;
}

GemmShape ConvolutionCut::productOf(const Block &block, bool again) const {
  GemmShape s;
  s.a = s.b = type;
  s.accumulate = again;
  if (plan.kind == "forward") {
    s.m = groupFilters;
    s.n = block.count * plan.outWidth;
    s.k = s.rowA = groupChannels * kernelCells;
    s.rowB = windowsStride(block.count);
    s.rowC = outCells;
    s.c = type;
  } else if (plan.kind == "input") {
    // The weights are read transposed, without a copy.
    s.m = block.count * kernelCells;
    s.n = s.rowB = s.rowC = outCells;
    s.k = groupFilters;
    s.rowA = 1;
    s.columnA = groupChannels * kernelCells;
  } else if (turned) {
    s.m = block.count * kernelCells;
    s.n = s.rowC = groupFilters;
    s.k = s.rowA = s.columnB = outCells;
    s.rowB = 1;
  } else {
    s.m = groupFilters;
    s.n = block.count * kernelCells;
    s.k = s.rowA = s.columnB = outCells;
    s.rowB = 1;
    s.rowC = type == ElementType::f32 ? groupChannels * kernelCells : s.n;
  }
  return s;
}

} // namespace fsdpc

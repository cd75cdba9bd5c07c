// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GridSample and AffineGrid: an image read at places that are computed. Each
// result is a sum of the elements around its place, looked up by computed
// indices and weighed by the distance, so that the gradient reaches the image
// through the lookup and the grid through the weights, as in PyTorch.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/ops/Gather.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using nn::Predicate;

namespace {
// Says how places beyond the image are read along one dimension of `size`
// elements.
struct Border {
  Emitter &b;
  std::string padding;
  bool alignCorners;
  int64_t size;

  // With corners aligned, -1 and 1 are the centres of the first and last
  // elements, else their outer edges.
  double least() const { return alignCorners ? 0 : -0.5; }
  double most() const {
    return alignCorners ? double(size) - 1 : double(size) - 0.5;
  }
  // Keeps indices inside, for the lookup.
  Value clamped(Value x) const {
    return b.binary<nn::MinimumOp>(b.binary<nn::MaximumOp>(x, 0.0),
                                   double(size - 1));
  }
  Value reflected(Value x) const;
  Value place(Value coordinate) const;
};
} // namespace

// Reflects a place at both borders until it lies between them.
Value Border::reflected(Value x) const {
  double width = most() - least();
  if (width == 0)
    return b.like(x, least());
  // The distance from the nearer border that x is beyond, folded every two
  // widths.
  Value offset = b.unary<nn::AbsOp>(b.binary<nn::SubOp>(x, b.like(x, least())));
  Value rest = b.binary<nn::ModOp>(offset, 2 * width);
  Value back = b.binary<nn::SubOp>(b.like(x, 2 * width), rest);
  return b.binary<nn::AddOp>(b.binary<nn::MinimumOp>(rest, back), least());
}

// The place in elements of a coordinate in [-1, 1].
Value Border::place(Value coordinate) const {
  double n = double(size);
  Value x = alignCorners
                ? b.binary<nn::MulOp>(b.binary<nn::AddOp>(coordinate, 1.0),
                                      (n - 1) / 2)
                : b.binary<nn::AddOp>(b.binary<nn::MulOp>(coordinate, n / 2),
                                      (n - 1) / 2);
  return x;
}

// Weights of the elements at offsets from the floor of a place; `part` is what
// the place exceeds it by. Keys' cubic kernel (1981) has a = -3/4.
static SmallVector<Value> weightsOf(Emitter &b, StringRef mode, Value part) {
  if (mode == "nearest")
    return {b.like(part, 1)};
  auto one = [&] { return b.like(part, 1); };
  Value rest = b.binary<nn::SubOp>(one(), part);
  if (mode == "linear")
    return {rest, part};
  double a = -0.75;
  auto near = [&](Value t) {
    Value y = b.binary<nn::AddOp>(b.binary<nn::MulOp>(t, a + 2), -(a + 3));
    y = b.binary<nn::MulOp>(b.binary<nn::MulOp>(y, t), t);
    return b.binary<nn::AddOp>(y, 1.0);
  };
  auto far = [&](Value t) {
    Value y = b.binary<nn::AddOp>(b.binary<nn::MulOp>(t, a), -5 * a);
    y = b.binary<nn::AddOp>(b.binary<nn::MulOp>(y, t), 8 * a);
    return b.binary<nn::AddOp>(b.binary<nn::MulOp>(y, t), -4 * a);
  };
  return {far(b.binary<nn::AddOp>(part, 1.0)), near(part), near(rest),
          far(b.binary<nn::AddOp>(rest, 1.0))};
}

namespace {
// One element around a place along one dimension.
struct Tap {
  Value index, weight; // i64, f32
};
} // namespace

// The elements that a coordinate reads along one dimension. Padding "zeros"
// removes weights outside, "border" moves the place to the nearest element, and
// "reflection" mirrors it; indices are clamped in any case.
static SmallVector<Tap> tapsOf(const Border &border, StringRef mode,
                               Value coordinate) {
  Emitter &b = border.b;
  Value x = border.place(coordinate);
  if (mode == "nearest")
    x = b.unary<nn::RoundOp>(x);
  Value isOutside =
      b.binary<nn::OrOp>(b.compare(Predicate::lt, x, b.like(x, border.least())),
                         b.compare(Predicate::gt, x, b.like(x, border.most())));
  if (border.padding == "border")
    x = b.select(isOutside, border.clamped(x), x);
  else if (border.padding == "reflection")
    x = b.select(isOutside, border.reflected(x), x);
  Value floor = mode == "nearest" ? x : b.unary<nn::FloorOp>(x);
  SmallVector<Value> weights =
      weightsOf(b, mode, b.binary<nn::SubOp>(x, floor));
  SmallVector<Tap> taps;
  for (auto [k, weight] : llvm::enumerate(weights)) {
    double offset = double(k) - (mode == "cubic" ? 1 : 0);
    Value at = b.binary<nn::AddOp>(floor, offset);
    if (border.padding == "zeros") {
      Value isInside = b.binary<nn::AndOp>(
          b.compare(Predicate::ge, at, b.like(at, 0)),
          b.compare(Predicate::le, at, b.like(at, double(border.size - 1))));
      weight = b.select(isInside, weight, b.like(weight, 0));
    } else if (border.padding == "reflection") {
      at = b.unary<nn::FloorOp>(border.reflected(at));
    }
    at = border.clamped(at);
    taps.push_back({b.cast(at, b.builder.getI64Type()), weight});
  }
  return taps;
}

namespace {
// Says how a GridSample reads: its kernel, and what stands for places outside.
struct GridSampling {
  std::string mode, padding;
};
} // namespace

// Refuses a node whose image, grid or attributes are not those of ONNX.
static FailureOr<GridSampling> readGridSampling(Node &node) {
  if (failed(node.expectInputs(2, 2)) ||
      failed(node.expectFloat(node.input(0))) ||
      failed(node.expectFloat(node.input(1))))
    return failure();
  Value image = node.input(0), grid = node.input(1);
  int64_t rank = rankOf(image), dims = rank - 2;
  if (dims < 1 || dims > 3 || rankOf(grid) != rank ||
      shapeOf(grid).back() != dims || shapeOf(grid)[0] != shapeOf(image)[0] ||
      tensorType(image).getNumElements() == 0 ||
      tensorType(grid).getNumElements() == 0)
    return node.refuse("the grid must have the image's rank and batch, and one "
                       "coordinate for each of one to three spatial "
                       "dimensions; neither may be empty");
  std::string mode = node.getString("mode", "linear");
  if (mode == "bilinear")
    mode = "linear";
  if (mode == "bicubic")
    mode = "cubic";
  std::string padding = node.getString("padding_mode", "zeros");
  if (mode != "linear" && mode != "nearest" && mode != "cubic")
    return node.refuse("attribute 'mode' is '" + mode +
                       "'; use linear, nearest or cubic");
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    return node.refuse("attribute 'padding_mode' is '" + padding +
                       "'; use zeros, border or reflection");
  return GridSampling{mode, padding};
}

// The image N×C×d…, the grid N×o…×D with the last dimension's coordinate first.
// torch.nn.functional.grid_sample (Jaderberg et al., Spatial Transformer
// Networks, 2015).
static LogicalResult gridSample(Node &node) {
  auto sampling = readGridSampling(node);
  if (failed(sampling))
    return failure();
  Emitter &b = node.b;
  Value image = node.input(0), grid = node.input(1);
  int64_t rank = rankOf(image), dims = rank - 2;
  bool align = node.getInt("align_corners", 0);
  Shape outer(shapeOf(grid).drop_back());
  // Places count over batch and spatial dimensions, with a row of C per place.
  Shape channelsLast = {0};
  for (int64_t i = 2; i < rank; ++i)
    channelsLast.push_back(i);
  channelsLast.push_back(1);
  int64_t channels = shapeOf(image)[1];
  Value table =
      b.reshape(b.transpose(image, channelsLast),
                {tensorType(image).getNumElements() / channels, channels});
  // Pairs of a linear index and a weight. Each dimension multiplies their
  // number by its taps: 2^d for linear, 4^d for cubic.
  SmallVector<std::pair<Value, Value>> reads = {
      {b.iota(outer, 0), b.splat(tensorType(grid).clone(outer), 1)}};
  for (int64_t d = 0; d < dims; ++d) {
    int64_t size = shapeOf(image)[2 + d];
    Value coordinate =
        b.reshape(b.slice(grid, rankOf(grid) - 1, dims - 1 - d, 1), outer);
    Border border{b, sampling->padding, align, size};
    SmallVector<Tap> taps = tapsOf(border, sampling->mode, coordinate);
    SmallVector<std::pair<Value, Value>> next;
    for (auto [index, weight] : reads)
      for (const Tap &tap : taps)
        next.push_back(
            {b.binary<nn::AddOp>(b.binary<nn::MulOp>(index, double(size)),
                                 tap.index),
             b.binary<nn::MulOp>(weight, tap.weight)});
    reads = next;
  }
  Shape rows(outer);
  rows.push_back(channels);
  if (failed(node.checkShape(rows)))
    return failure();
  Shape column(outer);
  column.push_back(1);
  Value sum;
  for (auto [index, weight] : reads) {
    Value part =
        b.binary<nn::MulOp>(gatherRows(b, table, index),
                            b.broadcast(b.reshape(weight, column), rows));
    sum = sum ? b.binary<nn::AddOp>(sum, part) : part;
  }
  Shape channelsFirst = {0, rank - 1};
  for (int64_t i = 1; i < rank - 1; ++i)
    channelsFirst.push_back(i);
  return node.result(b.transpose(sum, channelsFirst));
}

// The grid that an affine map of [-1, 1]^D gives: theta is N×D×(D+1). One
// product of the grid of homogeneous coordinates with theta's transpose.
static LogicalResult affineGrid(Node &node) {
  if (failed(node.expectInputs(2, 2)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value theta = node.input(0);
  auto size = node.integers(1, "'size'");
  if (!size)
    return failure();
  int64_t dims = int64_t(size->size()) - 2;
  if ((dims != 2 && dims != 3) || rankOf(theta) != 3 ||
      shapeOf(theta)[0] != (*size)[0] || shapeOf(theta)[1] != dims ||
      shapeOf(theta)[2] != dims + 1)
    return node.refuse("'theta' must be N×2×3 or N×3×4, for a 'size' of 4 or 5 "
                       "numbers with the same N");
  bool align = node.getInt("align_corners", 0);
  Shape space(size->begin() + 2, size->end()), whole(space);
  whole.push_back(dims + 1);
  Shape grid = {(*size)[0]};
  grid.append(space);
  grid.push_back(dims);
  if (failed(node.checkShape(whole)) || failed(node.checkShape(grid)) ||
      llvm::is_contained(space, 0))
    return llvm::is_contained(space, 0) ? node.refuse("'size' is empty")
                                        : failure();
  Type real = elementOf(theta);
  SmallVector<Value> columns;
  Shape column(space);
  column.push_back(1);
  for (int64_t k = 0; k < dims; ++k) {
    int64_t d = dims - 1 - k;
    double n = double(space[d]);
    // Corners aligned: from -1 to 1 in n - 1 steps. Otherwise the centres of n
    // equal cells.
    double step = align ? (n > 1 ? 2 / (n - 1) : 0) : 2 / n;
    double start = align ? -1 : -1 + step / 2;
    Value x = b.binary<nn::MulOp>(b.cast(b.iota(space, d), real), step);
    columns.push_back(b.reshape(b.binary<nn::AddOp>(x, start), column));
  }
  columns.push_back(b.splat(tensorType(theta).clone(column), 1));
  int64_t places = 1;
  for (int64_t n : space)
    places *= n;
  Value base = b.reshape(b.concat(columns, dims), {places, dims + 1});
  Shape product = {(*size)[0], places, dims};
  base = b.broadcast(b.reshape(base, {1, places, dims + 1}),
                     {(*size)[0], places, dims + 1});
  Value result = b.matmul(base, theta, product, false, true);
  return node.result(b.reshape(result, grid));
}

void frontend::registerSampling(HandlerTable &table) {
  table.add("GridSample", 16, gridSample);
  table.add("AffineGrid", 20, affineGrid);
}

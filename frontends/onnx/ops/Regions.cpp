// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// DeformConv and RoiAlign: an image read between its elements, at places that
// are computed. Each place reads the four elements around it, looked up by
// computed indices and weighed by the distance, so that the gradient reaches
// the image through the lookup and the places through the weights.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/ops/Gather.h"
#include "frontends/onnx/ops/Window.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;
using nn::Predicate;

namespace {
// Planes of H×W elements, each a row of channels: P·H·W×C.
struct Planes {
  Value table;
  int64_t height, width;
};

// One of the elements around a coordinate, and its weight, 0 outside.
struct Tap {
  Value index, weight; // i64, f32
};
} // namespace

// Linear interpolation between the elements at floor(coordinate) and the next.
// Indices are kept inside, so the lookup is always valid; the weight decides.
// The floor has no gradient, the part beyond it has.
static SmallVector<Tap, 2> tapsOf(Emitter &b, Value coordinate, int64_t size) {
  Value floor = b.unary<nn::FloorOp>(coordinate);
  Value part = b.binary<nn::SubOp>(coordinate, floor);
  SmallVector<Tap, 2> taps;
  for (int64_t k : {0, 1}) {
    Value at = b.binary<nn::AddOp>(floor, double(k));
    Value weight = k ? part : b.binary<nn::SubOp>(b.like(part, 1), part);
    Value isInside = b.binary<nn::AndOp>(
        b.compare(Predicate::ge, at, b.like(at, 0)),
        b.compare(Predicate::le, at, b.like(at, double(size - 1))));
    at = b.binary<nn::MinimumOp>(b.binary<nn::MaximumOp>(at, 0.0),
                                 double(size - 1));
    taps.push_back({b.cast(at, b.builder.getI64Type()),
                    b.select(isInside, weight, b.like(weight, 0))});
  }
  return taps;
}

// Returns the four weighed elements around the places (y, x) of the planes
// `plane`, all three of one shape; the channels come last. Four lookups of
// whole rows of channels; the index is (plane · H + y) · W + x.
static SmallVector<Value, 4> weighedCorners(Emitter &b, const Planes &planes,
                                            Value plane, Value y, Value x) {
  Shape column(shapeOf(plane)), rows(column);
  column.push_back(1);
  rows.push_back(shapeOf(planes.table)[1]);
  SmallVector<Value, 4> corners;
  for (const Tap &down : tapsOf(b, y, planes.height))
    for (const Tap &right : tapsOf(b, x, planes.width)) {
      Value line = b.binary<nn::AddOp>(
          b.binary<nn::MulOp>(plane, double(planes.height)), down.index);
      Value index = b.binary<nn::AddOp>(
          b.binary<nn::MulOp>(line, double(planes.width)), right.index);
      Value weight = b.binary<nn::MulOp>(down.weight, right.weight);
      corners.push_back(
          b.binary<nn::MulOp>(gatherRows(b, planes.table, index),
                              b.broadcast(b.reshape(weight, column), rows)));
    }
  return corners;
}

// Combines the values from left to right.
template <typename OpT>
static Value combined(Emitter &b, ArrayRef<Value> values) {
  Value all = values[0];
  for (Value value : values.drop_front())
    all = b.binary<OpT>(all, value);
  return all;
}

// ---- DeformConv ----

namespace {
// The operands of a deformable convolution; K elements per window. Dai et al.,
// Deformable Convolutional Networks, 2017; the mask is that of the second
// version (Zhu et al., 2019). `taps` are the elements of a window.
struct Deformation {
  Value x, filter, offset, mask;
  Window window;
  int64_t group, offsetGroup, taps;
};
} // namespace

// Returns nullopt after it has refused the node.
static std::optional<Deformation> readDeformation(Node &node) {
  auto refuse = [&](const Twine &reason) -> std::optional<Deformation> {
    (void)node.refuse(reason);
    return std::nullopt;
  };
  for (int64_t i = 0; i < node.numInputs(); ++i)
    if (node.has(i) && failed(node.expectFloat(node.input(i))))
      return std::nullopt;
  Deformation d{node.input(0),
                node.input(1),
                node.input(2),
                node.input(4),
                {},
                node.getInt("group", 1),
                node.getInt("offset_group", 1),
                0};
  ArrayRef<int64_t> s = shapeOf(d.x), f = shapeOf(d.filter);
  if (s.size() != 4 || f.size() != 4 || tensorType(d.x).getNumElements() == 0)
    return refuse("the input and the filter must have two spatial dimensions");
  if (d.group < 1 || s[1] % d.group != 0 || s[1] / d.group != f[1] ||
      f[0] % d.group != 0 || d.offsetGroup < 1 || s[1] % d.offsetGroup != 0)
    return refuse("the filter does not fit the input's channels in " +
                  Twine(d.group) + " groups and " + Twine(d.offsetGroup) +
                  " groups of offsets");
  auto window = readWindow(node, s.drop_front(2), f.drop_front(2));
  if (!window)
    return std::nullopt;
  d.window = *window;
  d.taps = f[2] * f[3];
  int64_t groups = d.offsetGroup * d.taps;
  // An offset in y and one in x per group, tap and place of the window.
  Shape offset = {s[0], 2 * groups, d.window.output[0], d.window.output[1]};
  Shape mask = {s[0], groups, d.window.output[0], d.window.output[1]};
  if (shapeOf(d.offset) != ArrayRef<int64_t>(offset) ||
      (d.mask && shapeOf(d.mask) != ArrayRef<int64_t>(mask)))
    return refuse("the offsets must have shape " + printShape(offset) +
                  ", the mask " + printShape(mask));
  return d;
}

// The coordinates along a spatial dimension, N×G×K×oH×oW: where the window's
// element stands, plus its offset.
static Value coordinates(Emitter &b, const Deformation &d, int64_t dim) {
  const Window &w = d.window;
  Shape shape = {shapeOf(d.x)[0], d.offsetGroup, d.taps, w.output[0],
                 w.output[1]};
  Shape split = {shape[0], shape[1], shape[2], 2, shape[3], shape[4]};
  Value offset =
      b.reshape(b.slice(b.reshape(d.offset, split), 3, dim, 1), shape);
  double columns = double(w.kernel[1]);
  Value tap = b.iota(shape, 2);
  // Tap k is row k / columns and column k mod columns of the window.
  tap = dim == 0 ? b.binary<nn::DivOp>(tap, columns)
                 : b.binary<nn::ModOp>(tap, columns);
  Value place = b.binary<nn::AddOp>(
      b.binary<nn::MulOp>(b.iota(shape, 3 + dim), double(w.strides[dim])),
      b.binary<nn::MulOp>(tap, double(w.dilations[dim])));
  place = b.binary<nn::AddOp>(place, -double(w.pads[dim]));
  return b.binary<nn::AddOp>(b.cast(place, elementOf(offset)), offset);
}

// Inputs: X, W, offset, bias and mask. The elements that all windows read
// become columns, which the filters multiply.
static LogicalResult deformConv(Node &node) {
  if (failed(node.expectInputs(3, 5)))
    return failure();
  auto d = readDeformation(node);
  if (!d)
    return failure();
  Emitter &b = node.b;
  ArrayRef<int64_t> s = shapeOf(d->x), f = shapeOf(d->filter);
  int64_t each = s[1] / d->offsetGroup;
  // Channels of one group of offsets move together, so a plane is one sample's
  // group.
  Value table = b.reshape(d->x, {s[0], d->offsetGroup, each, s[2], s[3]});
  table = b.reshape(b.transpose(table, {0, 1, 3, 4, 2}),
                    {s[0] * d->offsetGroup * s[2] * s[3], each});
  Value y = coordinates(b, *d, 0), x = coordinates(b, *d, 1);
  Value plane = b.binary<nn::AddOp>(
      b.binary<nn::MulOp>(b.iota(shapeOf(y), 0), double(d->offsetGroup)),
      b.iota(shapeOf(y), 1));
  Value read = combined<nn::AddOp>(
      b, weighedCorners(b, {table, s[2], s[3]}, plane, y, x));
  if (d->mask) {
    Shape column(shapeOf(y));
    column.push_back(1);
    read = b.binary<nn::MulOp>(
        read, b.broadcast(b.reshape(d->mask, column), shapeOf(read)));
  }
  int64_t places = d->window.output[0] * d->window.output[1];
  int64_t inner = f[1] * d->taps, outer = f[0] / d->group;
  // N×G×K×oH×oW×C becomes the columns of the product: per group of filters,
  // channel by channel with all taps of each.
  Value columns = b.reshape(b.transpose(read, {0, 1, 5, 2, 3, 4}),
                            {s[0], d->group, inner, places});
  Value filters = b.reshape(d->filter, {1, d->group, outer, inner});
  Shape shape = {s[0], f[0], d->window.output[0], d->window.output[1]};
  if (failed(node.checkShape(shape)))
    return failure();
  Value result = b.reshape(
      b.matmul(filters, columns, {s[0], d->group, outer, places}), shape);
  if (Value bias = node.input(3)) {
    if (shapeOf(bias) != ArrayRef<int64_t>({f[0]}))
      return node.refuse("the bias must have one element per output channel");
    result = b.binary<nn::AddOp>(
        result, b.broadcast(b.reshape(bias, {f[0], 1, 1}), shape));
  }
  return node.result(result);
}

// ---- RoiAlign ----

namespace {
// Says how all regions are read: `samples` places per bin and dimension. He et
// al., Mask R-CNN, 2017.
struct Alignment {
  int64_t height, width, samples; // of the result, and of a bin
  double scale;
  bool isHalfPixel, isMaximum;
};
} // namespace

// The coordinates of all samples along one dimension, R×height×width×s×s: those
// of bin `dim + 1`, sample `dim + 3`. Also returns where they are inside. `dim`
// is 0 for y and 1 for x, `size` the image's extent.
static std::pair<Value, Value> samplesOf(Emitter &b, Value rois,
                                         const Alignment &a, int64_t dim,
                                         int64_t size) {
  int64_t regions = shapeOf(rois)[0];
  Shape shape = {regions, a.height, a.width, a.samples, a.samples};
  // A region is (x1, y1, x2, y2).
  auto edge = [&](int64_t k) {
    Value value =
        b.binary<nn::MulOp>(b.slice(rois, 1, k + (dim == 0), 1), a.scale);
    return a.isHalfPixel ? b.binary<nn::AddOp>(value, -0.5) : value;
  };
  Value start = edge(0), extent = b.binary<nn::SubOp>(edge(2), start);
  // The older form makes every region at least one pixel wide.
  if (!a.isHalfPixel)
    extent = b.binary<nn::MaximumOp>(extent, 1.0);
  Value bin =
      b.binary<nn::DivOp>(extent, double(dim == 0 ? a.height : a.width));
  auto wide = [&](Value value) {
    return b.broadcast(b.reshape(value, {regions, 1, 1, 1, 1}), shape);
  };
  auto number = [&](int64_t axis) {
    return b.cast(b.iota(shape, axis), elementOf(rois));
  };
  // Samples are spread evenly: at (i + 1/2) / samples of each bin.
  Value inBin = b.binary<nn::DivOp>(b.binary<nn::AddOp>(number(3 + dim), 0.5),
                                    double(a.samples));
  Value place = b.binary<nn::AddOp>(
      wide(start), b.binary<nn::MulOp>(
                       b.binary<nn::AddOp>(number(1 + dim), inBin), wide(bin)));
  // Places up to one pixel outside read the border, as in the reference.
  Value isInside = b.binary<nn::AndOp>(
      b.compare(Predicate::ge, place, b.like(place, -1)),
      b.compare(Predicate::le, place, b.like(place, double(size))));
  place = b.binary<nn::MinimumOp>(b.binary<nn::MaximumOp>(place, 0.0),
                                  double(size - 1));
  return {place, isInside};
}

// Inputs: images, regions in their coordinates, and the image of each region.
static LogicalResult roiAlign(Node &node) {
  if (failed(node.expectInputs(3, 3)) ||
      failed(node.expectFloat(node.input(0))) ||
      failed(node.expectFloat(node.input(1))) ||
      failed(expectIndices(node, node.input(2))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0), rois = node.input(1), images = node.input(2);
  if (rankOf(x) != 4 || rankOf(rois) != 2 || shapeOf(rois)[1] != 4 ||
      shapeOf(images) != shapeOf(rois).take_front(1) ||
      tensorType(x).getNumElements() == 0 || shapeOf(rois)[0] == 0)
    return node.refuse("the input must be N×C×H×W, the regions R×4 and their "
                       "images R; none may be empty");
  std::string mode = node.getString("mode", "avg");
  std::string coordinates =
      node.getString("coordinate_transformation_mode",
                     node.version >= 16 ? "half_pixel" : "output_half_pixel");
  Alignment a{
      node.getInt("output_height", 1),  node.getInt("output_width", 1),
      node.getInt("sampling_ratio", 0), node.getFloat("spatial_scale", 1),
      coordinates == "half_pixel",      mode == "max"};
  constexpr int64_t most = 1 << 12;
  if (a.samples < 1 || a.samples > most)
    return node.refuse("attribute 'sampling_ratio' is " + Twine(a.samples) +
                       "; a fixed number of samples is supported, not one that "
                       "depends on the regions");
  if ((mode != "avg" && mode != "max") || a.height < 1 || a.width < 1 ||
      (coordinates != "half_pixel" && coordinates != "output_half_pixel"))
    return node.refuse(
        "attribute 'mode' must be avg or max, the output's sizes "
        "positive, and the coordinates half_pixel or "
        "output_half_pixel");
  ArrayRef<int64_t> s = shapeOf(x);
  int64_t regions = shapeOf(rois)[0], channels = s[1];
  Shape shape = {regions, a.height, a.width, a.samples, a.samples};
  Shape rows(shape);
  rows.push_back(channels);
  if (failed(node.checkShape(rows)) ||
      failed(expectInside(node, images, 0, s[0])))
    return failure();
  Value table =
      b.reshape(b.transpose(x, {0, 2, 3, 1}), {s[0] * s[2] * s[3], channels});
  Value plane = b.cast(images, b.builder.getI64Type());
  plane = b.broadcast(b.reshape(plane, {regions, 1, 1, 1, 1}), shape);
  auto [down, isInsideDown] = samplesOf(b, rois, a, 0, s[2]);
  auto [right, isInsideRight] = samplesOf(b, rois, a, 1, s[3]);
  Value isInside = b.binary<nn::AndOp>(isInsideDown, isInsideRight);
  Shape column(shape);
  column.push_back(1);
  isInside = b.broadcast(b.reshape(isInside, column), rows);
  SmallVector<Value, 4> corners =
      weighedCorners(b, {table, s[2], s[3]}, plane, down, right);
  // ONNX takes the largest weighed element, not the largest of their sums.
  Value value = a.isMaximum ? combined<nn::MaximumOp>(b, corners)
                            : combined<nn::AddOp>(b, corners);
  value = b.select(isInside, value, b.like(value, 0));
  // The mean is over all samples, those outside included.
  value = a.isMaximum ? b.reduce(nn::ReduceKind::max, value, {3, 4})
                      : b.mean(value, {3, 4});
  value = b.reshape(value, {regions, a.height, a.width, channels});
  return node.result(b.transpose(value, {0, 3, 1, 2}));
}

void frontend::registerRegions(HandlerTable &table) {
  table.add("DeformConv", 19, deformConv);
  table.add("RoiAlign", 10, roiAlign);
}

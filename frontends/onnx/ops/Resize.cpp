// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Resize and Upsample. Each axis is resized on its own: every element of the
// result is a sum of a few elements of the input, whose positions and weights
// follow from the shapes and are constants here: the rows of a matrix by which
// short axes are multiplied. The formulas are those of ONNX's Resize.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/ops/Gather.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {
// An axis of the input that changes from `from` to `to` elements. `scale` may
// differ from their quotient, since ONNX floors sizes.
struct Axis {
  int64_t axis, from, to;
  double scale;
  double start = 0, end = 1; // the region of tf_crop_and_resize
};
// The elements that one element of the result reads: consecutive ones, from
// `first` on, with a weight each.
struct Taps {
  int64_t first;
  SmallVector<double> weights;
  bool isOutside = false; // takes the extrapolation value
};
// The node's attributes: how elements weigh (mode), how places map
// (coordinates), and which neighbour counts (rounding).
struct Method {
  std::string mode, coordinates, rounding;
  double cubic, extrapolation;
  bool excludeOutside, antialias;
};
} // namespace

// The place in the input of element `i` of the result. In units of elements,
// with element 0 at 0; it may lie outside of the input.
static double sourceOf(const Method &m, const Axis &a, int64_t i) {
  double from = double(a.from), to = a.scale * from, x = double(i);
  if (m.coordinates == "align_corners")
    return to == 1 ? 0 : x * (from - 1) / (to - 1);
  if (m.coordinates == "asymmetric")
    return x / a.scale;
  if (m.coordinates == "tf_crop_and_resize") {
    double extent = (a.end - a.start) * (from - 1);
    return a.start * (from - 1) +
           (a.to == 1 ? extent / 2 : x * extent / (to - 1));
  }
  if (m.coordinates == "pytorch_half_pixel" && a.to == 1)
    return -0.5;
  double half = (x + 0.5) / a.scale - 0.5;
  if (m.coordinates == "half_pixel_symmetric")
    return from / 2 * (1 - double(a.to) / to) + half;
  return half;
}

// Keys' cubic kernel (1981). Piecewise cubic with support [-2, 2]; `a` is its
// slope at 1.
static double cubicKernel(double x, double a) {
  x = std::abs(x);
  if (x <= 1)
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// Weights of the elements around a place that lies `ratio`, in (0, 1], after an
// element; `first` is relative to that element.
static Taps weightsAt(const Method &m, double ratio, double scale) {
  if (m.mode == "nearest") {
    bool isNext = ratio == 1 || m.rounding == "ceil" ||
                  (m.rounding == "round_prefer_floor" && ratio > 0.5) ||
                  (m.rounding == "round_prefer_ceil" && ratio >= 0.5);
    return {isNext ? 1 : 0, {1}};
  }
  bool isCubic = m.mode == "cubic";
  // Shrinking with antialias widens the kernel.
  double step = m.antialias ? std::min(scale, 1.0) : 1;
  double radius = isCubic ? 2 : 1;
  Taps taps;
  taps.first = int64_t(std::floor(-radius / step)) + 1;
  int64_t end = 2 - taps.first;
  double total = 0;
  for (int64_t i = taps.first; i < end; ++i) {
    double x = (double(i) - ratio) * step;
    double weight =
        isCubic ? cubicKernel(x, m.cubic) : std::max(0.0, 1 - std::abs(x));
    taps.weights.push_back(weight);
    total += weight;
  }
  if (m.antialias)
    for (double &weight : taps.weights)
      weight /= total;
  return taps;
}

// Elements outside of the input repeat the border when they are gathered,
// unless `excludeOutside` drops them and scales the others up.
static Taps tapsOf(const Method &m, const Axis &a, int64_t i) {
  double x = sourceOf(m, a, i);
  if (m.coordinates == "tf_crop_and_resize" &&
      (x < 0 || x > double(a.from - 1)))
    return {0, {0}, true};
  double floor = std::floor(x);
  // A place on an element counts as 1 after the one before it.
  bool isWhole = x == floor;
  Taps taps = weightsAt(m, isWhole ? 1 : x - floor, a.scale);
  taps.first += int64_t(floor) - isWhole;
  if (m.excludeOutside) {
    double total = 0;
    for (auto [k, weight] : llvm::enumerate(taps.weights)) {
      int64_t at = taps.first + int64_t(k);
      weight = at < 0 || at >= a.from ? 0 : weight;
      total += weight;
    }
    for (double &weight : taps.weights)
      weight /= total;
  }
  return taps;
}

// Repeats each element `times` times. A broadcast instead of a gather: nearest
// upsampling by a whole factor costs nothing extra.
static Value repeated(Emitter &b, Value x, int64_t axis, int64_t times) {
  Shape split(shapeOf(x)), wide, shape(shapeOf(x));
  split.insert(split.begin() + axis + 1, 1);
  wide = split;
  wide[axis + 1] = times;
  shape[axis] *= times;
  return b.reshape(b.broadcast(b.reshape(x, split), wide), shape);
}

// Returns the taps of all elements that an axis has afterwards.
static SmallVector<Taps> allTaps(const Method &m, const Axis &a) {
  SmallVector<Taps> taps;
  for (int64_t i = 0; i < a.to; ++i)
    taps.push_back(tapsOf(m, a, i));
  return taps;
}

static int64_t insideOf(const Axis &a, int64_t at) {
  return std::clamp<int64_t>(at, 0, a.from - 1);
}

// Returns true if the axis is resized by a product with the dense matrix of its
// weights. For axes of such lengths it is several times as fast as gathers, and
// so is its gradient, although most of the matrix is zero. Nearest neighbours
// are copied instead, so that an infinity stays where it is.
static bool usesProduct(const Method &m, const Axis &a) {
  constexpr int64_t longest = 192, most = 1 << 18;
  return m.mode != "nearest" && a.from <= longest && a.to <= most / a.from;
}

// Multiplies each run along the axis by the matrix of weights.
static Value product(Emitter &b, Value x, const Axis &a, ArrayRef<Taps> taps) {
  SmallVector<float> weights(a.to * a.from, 0);
  for (int64_t i = 0; i < a.to; ++i)
    for (auto [k, weight] : llvm::enumerate(taps[i].weights))
      weights[i * a.from + insideOf(a, taps[i].first + int64_t(k))] +=
          float(weight);
  auto type = RankedTensorType::get({a.to, a.from}, b.builder.getF32Type());
  Value matrix =
      b.cast(b.constant(DenseElementsAttr::get(type, ArrayRef(weights))),
             elementOf(x));
  ArrayRef<int64_t> s = shapeOf(x);
  Shape shape(s);
  shape[a.axis] = a.to;
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < rankOf(x); ++d)
    (d < a.axis ? outer : inner) *= d == a.axis ? 1 : s[d];
  Value y;
  if (inner == 1) {
    Shape runs = {outer, a.to};
    y = b.matmul(b.reshape(x, {outer, a.from}), matrix, runs, false, true);
  } else {
    Shape runs = {outer, a.to, inner};
    y = b.matmul(matrix, b.reshape(x, {outer, a.from, inner}), runs, false,
                 false);
  }
  return b.reshape(y, shape);
}

// Sums the taps of all elements of an axis: one gather per tap.
static Value gathered(Emitter &b, Value x, const Axis &a, ArrayRef<Taps> taps,
                      bool isCopy) {
  size_t most = 0;
  for (const Taps &t : taps)
    most = std::max(most, t.weights.size());
  Shape perElement(rankOf(x), 1);
  perElement[a.axis] = a.to;
  Value sum;
  for (size_t k = 0; k < most; ++k) {
    SmallVector<int64_t> ids;
    SmallVector<float> weights;
    for (const Taps &t : taps) {
      ids.push_back(insideOf(a, t.first + int64_t(k)));
      weights.push_back(k < t.weights.size() ? float(t.weights[k]) : 0);
    }
    // A tap that no element uses, as at the ends of a kernel.
    if (llvm::all_of(weights, [](float weight) { return weight == 0; }))
      continue;
    Value part = gatherAlong(b, x, b.integers(ids), a.axis);
    if (!isCopy) {
      auto type = RankedTensorType::get({a.to}, b.builder.getF32Type());
      Value factor =
          b.constant(DenseElementsAttr::get(type, ArrayRef(weights)));
      factor = b.broadcast(b.reshape(factor, perElement), shapeOf(part));
      part = b.binary<nn::MulOp>(part, factor);
    }
    sum = sum ? b.binary<nn::AddOp>(sum, part) : part;
  }
  if (sum)
    return sum;
  Shape shape(shapeOf(x));
  shape[a.axis] = a.to;
  return b.splat(tensorType(x).clone(shape), 0);
}

static Value resized(Emitter &b, const Method &m, Value x, const Axis &a) {
  SmallVector<Taps> taps = allTaps(m, a);
  // Each element of the result is one of the input's.
  bool isCopy = llvm::all_of(taps, [](const Taps &t) {
    return !t.isOutside && t.weights.size() == 1 && t.weights[0] == 1;
  });
  if (isCopy && a.to % a.from == 0) {
    int64_t times = a.to / a.from;
    bool isRepeated = true;
    for (int64_t i = 0; i < a.to; ++i)
      isRepeated &= insideOf(a, taps[i].first) == i / times;
    if (isRepeated)
      return repeated(b, x, a.axis, times);
  }
  Value sum = usesProduct(m, a) ? product(b, x, a, taps)
                                : gathered(b, x, a, taps, isCopy);
  SmallVector<bool> outside;
  for (const Taps &t : taps)
    outside.push_back(t.isOutside);
  if (!llvm::is_contained(outside, true))
    return sum;
  Shape perElement(rankOf(x), 1);
  perElement[a.axis] = a.to;
  auto type = RankedTensorType::get({a.to}, b.builder.getI1Type());
  Value mask = b.constant(DenseElementsAttr::get(type, ArrayRef(outside)));
  mask = b.broadcast(b.reshape(mask, perElement), shapeOf(sum));
  return b.select(mask, b.like(sum, m.extrapolation), sum);
}

// Returns the numbers of a constant input of floats.
static std::optional<SmallVector<double>> numbers(Node &node, int64_t i,
                                                  StringRef what) {
  DenseElementsAttr value = constantOf(node.input(i));
  if (!value || !value.getElementType().isF32())
    return (void)node.refuse(what + " must be constant floats"), std::nullopt;
  SmallVector<double> result;
  for (float number : value.getValues<float>())
    result.push_back(number);
  return result;
}

// Sets the scale and size of each axis by 'scales' or 'sizes'. `scalesAt` and
// `sizesAt` are input numbers, -1 where the version has none. Empty inputs
// count as absent: exporters write them so.
static LogicalResult readSizes(Node &node, MutableArrayRef<Axis> axes,
                               int64_t scalesAt, int64_t sizesAt) {
  auto isGiven = [&](int64_t i) {
    return i >= 0 && node.has(i) &&
           tensorType(node.input(i)).getNumElements() > 0;
  };
  std::optional<SmallVector<double>> scales;
  if (isGiven(scalesAt) || node.attribute("scales")) {
    if (const auto *given = node.attribute("scales"))
      scales =
          SmallVector<double>(given->floats().begin(), given->floats().end());
    else
      scales = numbers(node, scalesAt, "'scales'");
    if (!scales)
      return failure();
    if (scales->size() != axes.size())
      return node.refuse("'scales' must have one entry per axis");
    for (auto [a, scale] : llvm::zip(axes, *scales)) {
      double size = std::floor(scale * double(a.from));
      if (!(scale > 0) || !(size >= 1 && size <= double(1 << 24)))
        return node.refuse("'scales' must be positive and leave at least one "
                           "element, of at most 2^24");
      a.scale = scale;
      a.to = int64_t(size);
    }
    return success();
  }
  if (!isGiven(sizesAt))
    return node.refuse("neither 'scales' nor 'sizes' is given");
  auto sizes = node.integers(sizesAt, "'sizes'");
  if (!sizes)
    return failure();
  if (sizes->size() != axes.size())
    return node.refuse("'sizes' must have one entry per axis");
  std::string policy = node.getString("keep_aspect_ratio_policy", "stretch");
  double common = policy == "not_larger" ? HUGE_VAL : 0;
  for (auto [a, size] : llvm::zip(axes, *sizes)) {
    if (size < 1 || size > 1 << 24)
      return node.refuse("'sizes' must be positive, and at most 2^24");
    a.to = size;
    a.scale = double(size) / double(a.from);
    common = policy == "not_larger" ? std::min(common, a.scale)
                                    : std::max(common, a.scale);
  }
  if (policy == "stretch")
    return success();
  if (policy != "not_larger" && policy != "not_smaller")
    return node.refuse("attribute 'keep_aspect_ratio_policy' is '" + policy +
                       "'; use stretch, not_larger or not_smaller");
  // One scale for all axes: the smallest or the largest of those asked for.
  for (Axis &a : axes) {
    a.scale = common;
    double size = std::floor(common * double(a.from) + 0.5);
    if (!(size >= 1 && size <= double(1 << 24)))
      return node.refuse("a resized dimension is empty or too large");
    a.to = int64_t(size);
  }
  return success();
}

// Resizes along the axes in turn, the shrinking ones first: they leave less to
// do.
static LogicalResult resizeAll(Node &node, const Method &m,
                               SmallVector<Axis> axes) {
  Value x = node.input(0);
  llvm::stable_sort(
      axes, [](const Axis &a, const Axis &b) { return a.scale < b.scale; });
  for (const Axis &a : axes) {
    bool isSame =
        a.from == a.to && a.scale == 1 && m.coordinates != "tf_crop_and_resize";
    if (isSame)
      continue;
    Shape shape(shapeOf(x));
    shape[a.axis] = a.to;
    // With antialias a kernel widens by what the axis shrinks.
    constexpr double least = 1.0 / 1024;
    if (m.antialias && a.scale < least)
      return node.refuse("shrinking an axis more than 1024 times with "
                         "'antialias' is not supported");
    int64_t taps = tapsOf(m, a, 0).weights.size();
    if (failed(node.checkShape(shape)))
      return failure();
    // A matrix, or a gather per tap with `to` indices each.
    if (!node.b.spend(Cost::indices,
                      a.to * (usesProduct(m, a) ? a.from : taps)))
      return node.refuse("the nodes up to this one need " +
                         Budgets::exceeded(Cost::indices));
    x = resized(node.b, m, x, a);
  }
  return node.result(x);
}

static LogicalResult expectResizable(Node &node) {
  if (failed(node.expectFloat(node.input(0))))
    return failure();
  if (tensorType(node.input(0)).getNumElements() == 0)
    return node.refuse("the input must not be empty");
  return success();
}

// One entry per dimension; those that do not change are passed over later.
static SmallVector<Axis> allAxes(Value x) {
  SmallVector<Axis> axes;
  for (int64_t i = 0; i < rankOf(x); ++i)
    axes.push_back({i, shapeOf(x)[i], shapeOf(x)[i], 1});
  return axes;
}

// Resize of opset 11 and later. Inputs: x, roi, scales, sizes. 'linear' along
// two axes is bilinear, since axes are resized one after the other.
static LogicalResult resize(Node &node) {
  if (failed(node.expectInputs(1, 4)) || failed(expectResizable(node)))
    return failure();
  Method m{node.getString("mode", "nearest"),
           node.getString("coordinate_transformation_mode", "half_pixel"),
           node.getString("nearest_mode", "round_prefer_floor"),
           node.getFloat("cubic_coeff_a", -0.75),
           node.getFloat("extrapolation_value", 0),
           node.getInt("exclude_outside", 0) != 0,
           node.getInt("antialias", 0) != 0};
  const char *known[] = {"half_pixel",         "pytorch_half_pixel",
                         "align_corners",      "asymmetric",
                         "tf_crop_and_resize", "half_pixel_symmetric"};
  if (!llvm::is_contained(known, m.coordinates))
    return node.refuse("attribute 'coordinate_transformation_mode' is '" +
                       m.coordinates + "', which is not known");
  if (m.mode != "nearest" && m.mode != "linear" && m.mode != "cubic")
    return node.refuse("attribute 'mode' is '" + m.mode +
                       "'; use nearest, linear or cubic");
  Value x = node.input(0);
  SmallVector<Axis> axes = allAxes(x);
  if (auto given = node.getInts("axes")) {
    if (!node.axes(*given, rankOf(x)))
      return failure();
    SmallVector<Axis> chosen;
    for (int64_t axis : *given)
      chosen.push_back(axes[axis < 0 ? axis + rankOf(x) : axis]);
    axes = chosen;
  }
  if (m.coordinates == "tf_crop_and_resize") {
    auto region = numbers(node, 1, "'roi'");
    if (!region)
      return failure();
    if (region->size() != 2 * axes.size())
      return node.refuse("'roi' must have two entries per axis");
    for (auto [i, a] : llvm::enumerate(axes)) {
      a.start = (*region)[i];
      a.end = (*region)[i + axes.size()];
    }
  }
  if (failed(readSizes(node, axes, 2, 3)))
    return failure();
  return resizeAll(node, m, axes);
}

// Upsample, and Resize of opset 10, of the scales alone. Coordinates are
// asymmetric and nearest rounds down, as those versions define.
static LogicalResult upsample(Node &node) {
  if (failed(node.expectInputs(1, 2)) || failed(expectResizable(node)))
    return failure();
  Method m{node.getString("mode", "nearest"),
           "asymmetric",
           "floor",
           -0.75,
           0,
           false,
           false};
  if (m.mode != "nearest" && m.mode != "linear")
    return node.refuse("attribute 'mode' is '" + m.mode +
                       "'; use nearest or linear");
  SmallVector<Axis> axes = allAxes(node.input(0));
  if (failed(readSizes(node, axes, 1, -1)))
    return failure();
  return resizeAll(node, m, axes);
}

void frontend::registerResize(HandlerTable &table) {
  table.add("Upsample", 7, upsample);
  table.add("Resize", 10, upsample);
  table.add("Resize", 11, resize);
}

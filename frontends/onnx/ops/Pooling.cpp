// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pooling. nn has pools over images; all other pools (dilated ones, those of
// integers, Lp norms) are taken along one spatial dimension after the other, as
// the extreme or the sum of one slice per element of the window.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/ops/Gather.h"
#include "frontends/onnx/ops/Pad.h"
#include "frontends/onnx/ops/Volume.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// ---- one dimension after the other ----

// Combines the elements of each window with OpT, of which `neutral` is the
// neutral element. `x` has the dimensions of the window behind batch and
// channels. Maxima and sums over a box separate into dimensions, so a window of
// k×k takes 2k ops instead of k².
template <typename OpT>
static Value alongDimensions(Emitter &b, Value x, const Window &w,
                             double neutral) {
  size_t dims = w.kernel.size();
  for (size_t d = 0; d < dims; ++d) {
    int64_t axis = 2 + d;
    Value padded = padByValue(b, x, axis, w.pads[d], w.pads[d + dims], neutral);
    Shape offsets(rankOf(x), 0), strides(rankOf(x), 1), shape(shapeOf(x));
    // A single output needs no stride, which might exceed the dimension.
    strides[axis] = w.output[d] > 1 ? w.strides[d] : 1;
    shape[axis] = w.output[d];
    Value all;
    for (int64_t k = 0; k < w.kernel[d]; ++k) {
      offsets[axis] = k * w.dilations[d];
      Value part = b.slice(padded, offsets, strides, shape);
      all = all ? b.binary<OpT>(all, part) : part;
    }
    x = all;
  }
  return x;
}

// Returns how many elements each window has, in the window's output shape:
// those of the input, and with `counted` those of its pads. Elements that
// ceil_mode adds never count. The counts separate like the sums: one constant
// vector per dimension.
static Value windowSizes(Emitter &b, const Window &w, ArrayRef<int64_t> sizes,
                         bool counted) {
  size_t dims = w.kernel.size();
  Value all;
  for (size_t d = 0; d < dims; ++d) {
    int64_t first = counted ? -w.pads[d] : 0;
    int64_t end = sizes[d] + (counted ? w.pads[d + dims] - w.extra[d] : 0);
    SmallVector<float> counts;
    for (int64_t i = 0; i < w.output[d]; ++i) {
      int64_t count = 0;
      for (int64_t k = 0; k < w.kernel[d]; ++k) {
        int64_t at = i * w.strides[d] + k * w.dilations[d] - w.pads[d];
        count += at >= first && at < end;
      }
      counts.push_back(float(count));
    }
    auto type = RankedTensorType::get({w.output[d]}, b.builder.getF32Type());
    Shape column(dims, 1);
    column[d] = w.output[d];
    Value line = b.reshape(
        b.constant(DenseElementsAttr::get(type, ArrayRef(counts))), column);
    line = b.broadcast(line, w.output);
    all = all ? b.binary<nn::MulOp>(all, line) : line;
  }
  return all;
}

// ---- handlers ----

namespace {
// The input of a pool, as an image where it has one or two spatial dimensions.
struct Pool {
  Value input;
  Window window;
  int64_t rank; // of the node's input
};
} // namespace

// Returns nullopt after it has refused the node. Sizes and pads are known here,
// so auto_pad and ceil_mode are resolved into the window.
static std::optional<Pool> readPool(Node &node) {
  auto refuse = [&](const Twine &reason) -> std::optional<Pool> {
    (void)node.refuse(reason);
    return std::nullopt;
  };
  if (failed(node.expectInputs(1, 1)))
    return std::nullopt;
  Value x = node.input(0);
  auto kernel = node.getInts("kernel_shape");
  if (!kernel)
    return refuse("attribute 'kernel_shape' is missing");
  if (rankOf(x) < 3 || rankOf(x) > 5)
    return refuse("the input has " + Twine(rankOf(x) - 2) +
                  " spatial dimensions; 1 to 3 are supported");
  auto window = readWindow(node, shapeOf(x).drop_front(2), *kernel);
  if (!window)
    return std::nullopt;
  Shape shape(shapeOf(x).take_front(2));
  shape.append(window->output);
  if (failed(node.checkShape(shape)))
    return std::nullopt;
  return Pool{rankOf(x) == 5 ? x : image(node, x), *window, rankOf(x)};
}

// Returns true if height and width, the last two dimensions, have gaps.
static bool isDilated(const Window &w) {
  return ArrayRef<int64_t>(w.dilations).take_back(2) !=
         ArrayRef<int64_t>({1, 1});
}

// Returns where the maxima of images stand in the whole input, as ONNX counts:
// row by row, or column by column. nn counts within each window. The position
// is ((n · C + c) · H + y) · W + x, in i64 since it may exceed 2^31.
static Value positionsOf(Node &node, const Pool &pool, Value index) {
  Emitter &b = node.b;
  const Window &w = pool.window;
  ArrayRef<int64_t> s = shapeOf(pool.input), shape = shapeOf(index);
  index = b.cast(index, b.builder.getI64Type());
  auto place = [&](int64_t d, Value inWindow) {
    Value first =
        b.binary<nn::MulOp>(b.iota(shape, 2 + d), double(w.strides[d]));
    return b.binary<nn::AddOp>(b.binary<nn::AddOp>(first, -double(w.pads[d])),
                               inWindow);
  };
  Value y = place(0, b.binary<nn::DivOp>(index, double(w.kernel[1])));
  Value x = place(1, b.binary<nn::ModOp>(index, double(w.kernel[1])));
  bool byColumns = node.getInt("storage_order", 0);
  Value inPlane =
      byColumns ? b.binary<nn::AddOp>(b.binary<nn::MulOp>(x, double(s[2])), y)
                : b.binary<nn::AddOp>(b.binary<nn::MulOp>(y, double(s[3])), x);
  Value plane = b.binary<nn::AddOp>(
      b.binary<nn::MulOp>(b.iota(shape, 0), double(s[1])), b.iota(shape, 1));
  return b.binary<nn::AddOp>(b.binary<nn::MulOp>(plane, double(s[2] * s[3])),
                             inPlane);
}

// Pads count as minus infinity, or the least integer, so they are never the
// maximum.
static LogicalResult maxPool(Node &node) {
  auto pool = readPool(node);
  if (!pool)
    return failure();
  Emitter &b = node.b;
  Value x = pool->input;
  const Window &w = pool->window;
  bool isFloat = isa<FloatType>(elementOf(x));
  bool isGeneral = !isFloat || isDilated(w);
  if (node.isUsed(1) && (isGeneral || pool->rank == 5))
    return node.refuse("output 'Indices' is supported for floats, one or two "
                       "spatial dimensions and dilations of 1");
  if (isGeneral) {
    if (elementOf(x).isInteger(1))
      return node.refuse("bool inputs are not supported");
    double least =
        isFloat ? -std::numeric_limits<double>::infinity()
        : elementOf(x).isUnsignedInteger()
            ? 0
            : -std::ldexp(1.0, elementOf(x).getIntOrFloatBitWidth() - 1);
    Value y = alongDimensions<nn::MaximumOp>(b, x, w, least);
    return node.result(likeInput(b, y, pool->rank));
  }
  if (pool->rank == 5) {
    Value y = maxPoolVolume(node, x);
    return y ? node.result(y) : failure();
  }
  Shape shape = {shapeOf(x)[0], shapeOf(x)[1], w.output[0], w.output[1]};
  auto index = RankedTensorType::get(shape, b.builder.getI32Type());
  auto y = b.op<nn::MaxPool2dOp>(TypeRange{tensorType(x).clone(shape), index},
                                 x, w.kernel, w.strides, w.pads);
  node.setOutput(0, likeInput(b, y.getResult(), pool->rank));
  if (node.isUsed(1))
    node.setOutput(
        1, likeInput(b, positionsOf(node, *pool, y.getIndex()), pool->rank));
  return success();
}

// A pool that counts pads under ceil_mode must leave out what ceil_mode adds,
// which nn's pool cannot.
static LogicalResult averagePool(Node &node) {
  auto pool = readPool(node);
  if (!pool || failed(node.expectFloat(pool->input)))
    return failure();
  Emitter &b = node.b;
  Value x = pool->input;
  const Window &w = pool->window;
  // Padding that ceil_mode adds never counts, so none counts unless the node
  // has pads of its own.
  bool hasPads = false;
  for (size_t i = 0, dims = w.kernel.size(); i < dims; ++i)
    hasPads |= w.pads[i] != 0 || w.pads[i + dims] != w.extra[i];
  bool counted = hasPads && node.getInt("count_include_pad", 0);
  // nn counts all pads alike.
  bool isGeneral = isDilated(w) || (counted && node.getInt("ceil_mode", 0));
  if (isGeneral) {
    Value sum = alongDimensions<nn::AddOp>(b, x, w, 0);
    Value counts = windowSizes(b, w, shapeOf(x).drop_front(2), counted);
    Value y = b.binary<nn::DivOp>(sum, b.broadcast(counts, shapeOf(sum)));
    return node.result(likeInput(b, y, pool->rank));
  }
  if (pool->rank == 5) {
    Value y = averagePoolVolume(node, x);
    return y ? node.result(y) : failure();
  }
  Shape shape = {shapeOf(x)[0], shapeOf(x)[1], w.output[0], w.output[1]};
  Value y = b.make<nn::AvgPool2dOp>(tensorType(x).clone(shape), x, w.kernel,
                                    w.strides, w.pads, counted);
  return node.result(likeInput(b, y, pool->rank));
}

// (Σ|x|^p)^(1/p). A window of zeros has the norm 0, of slope 0. The selects
// keep the infinite slope of the root at 0 out of the gradient.
static Value norm(Emitter &b, Value sum, double p) {
  Value isZero = b.compare(nn::Predicate::eq, sum, b.like(sum, 0));
  Value root =
      b.binary<nn::PowOp>(b.select(isZero, b.like(sum, 1), sum), 1 / p);
  return b.select(isZero, b.like(sum, 0), root);
}

static Value powers(Emitter &b, Value x, double p) {
  Value magnitude = b.unary<nn::AbsOp>(x);
  return p == 1 ? magnitude : b.binary<nn::PowOp>(magnitude, p);
}

// Pads count as 0.
static LogicalResult lpPool(Node &node) {
  auto pool = readPool(node);
  if (!pool || failed(node.expectFloat(pool->input)))
    return failure();
  Emitter &b = node.b;
  int64_t p = node.getInt("p", 2);
  if (p < 1)
    return node.refuse("attribute 'p' is " + Twine(p) +
                       "; it must be positive");
  Value sum = alongDimensions<nn::AddOp>(b, powers(b, pool->input, double(p)),
                                         pool->window, 0);
  return node.result(likeInput(b, norm(b, sum, double(p)), pool->rank));
}

// Pools over all spatial dimensions, of any number.
enum class Global { mean, max, lp };

// These reduce without a window, so any number of dimensions is fine.
template <Global kind> static LogicalResult globalPool(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  if (rankOf(x) < 3 || tensorType(x).getNumElements() == 0)
    return node.refuse("the input must have at least one spatial dimension and "
                       "must not be empty");
  Shape axes;
  for (int64_t i = 2; i < rankOf(x); ++i)
    axes.push_back(i);
  if (kind == Global::mean)
    return node.result(b.mean(x, axes));
  if (kind == Global::max)
    return node.result(b.reduce(nn::ReduceKind::max, x, axes));
  int64_t p = node.getInt("p", 2);
  if (p < 1)
    return node.refuse("attribute 'p' is " + Twine(p) +
                       "; it must be positive");
  Value sum = b.reduce(nn::ReduceKind::sum, powers(b, x, double(p)), axes);
  return node.result(norm(b, sum, double(p)));
}

// Places each element where MaxPool's indices say; zeros elsewhere. The indices
// count in the shape that the window gives, which 'output_shape' extends at the
// end of each dimension. The scatter is the gradient of a lookup of single
// elements: indices count over the whole tensor, and equal indices add up.
static LogicalResult maxUnpool(Node &node) {
  if (failed(node.expectInputs(2, 3)) ||
      failed(node.expectFloat(node.input(0))) ||
      failed(expectIndices(node, node.input(1))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0), indices = node.input(1);
  auto kernel = node.getInts("kernel_shape");
  if (rankOf(x) < 3 || shapeOf(indices) != shapeOf(x) || !kernel ||
      int64_t(kernel->size()) != rankOf(x) - 2)
    return node.refuse("the indices must have the input's shape, and "
                       "'kernel_shape' one entry per spatial dimension");
  size_t dims = kernel->size();
  auto given = [&](StringRef name, int64_t absent, size_t count) {
    auto values = node.getInts(name);
    return values ? Shape(*values) : Shape(count, absent);
  };
  Shape strides = given("strides", 1, dims), pads = given("pads", 0, 2 * dims);
  if (strides.size() != dims || pads.size() != 2 * dims)
    return node.refuse("'strides' and 'pads' must match the rank of the input");
  Shape shape(shapeOf(x).take_front(2));
  constexpr int64_t most = 1 << 24; // so that nothing overflows
  for (size_t d = 0; d < dims; ++d) {
    for (int64_t value : {(*kernel)[d], strides[d], pads[d] + 1,
                          pads[d + dims] + 1, shapeOf(x)[2 + d]})
      if (value < 1 || value > most)
        return node.refuse("the sizes of the window must be positive");
    shape.push_back((shapeOf(x)[2 + d] - 1) * strides[d] + (*kernel)[d] -
                    pads[d] - pads[d + dims]);
  }
  if (failed(node.checkShape(shape)))
    return failure();
  int64_t places = *countElements(shape),
          count = tensorType(x).getNumElements();
  for (int64_t value : integersOf(indices).value_or(SmallVector<int64_t>()))
    if (value < 0 || value >= places)
      return node.refuse("index " + Twine(value) + " is out of range for " +
                         Twine(places) + " elements");
  Value y = b.make<nn::EmbeddingGradOp>(
      tensorType(x).clone({places, 1}), b.reshape(x, {count, 1}),
      b.reshape(indices, {count}), Value(), IntegerAttr());
  y = b.reshape(y, shape);
  if (!node.has(2))
    return node.result(y);
  auto wanted = node.integers(2, "'output_shape'");
  if (!wanted || failed(node.checkShape(*wanted)))
    return failure();
  bool fits = wanted->size() == shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d)
    fits = (*wanted)[d] >= shape[d];
  if (!fits)
    return node.refuse("'output_shape' is " + printShape(*wanted) +
                       "; it must be at least " + printShape(shape));
  Shape none(shape.size(), 0), ones(shape.size(), 1);
  return node.result(
      b.make<nn::PadOp>(tensorType(y).clone(*wanted), y, none, ones));
}

void frontend::registerPooling(HandlerTable &table) {
  table.add("MaxPool", 1, maxPool);
  table.add("AveragePool", 7, averagePool);
  table.add("LpPool", 2, lpPool);
  table.add("MaxUnpool", 9, maxUnpool);
  table.add("GlobalAveragePool", 1, globalPool<Global::mean>);
  table.add("GlobalMaxPool", 1, globalPool<Global::max>);
  table.add("GlobalLpPool", 2, globalPool<Global::lp>);
}

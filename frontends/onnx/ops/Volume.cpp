// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// nn has windows over two dimensions. One over three is a window over depth, of
// slices that are images: a convolution takes the slices of a window as
// channels of one image, a pool takes the extreme or the mean of pooled images.
// Depth is padded and sliced here, height and width by nn.
#include "frontends/onnx/ops/Volume.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {
// A window of three dimensions, split into depth and image.
struct VolumeWindow {
  int64_t kernel, stride, dilation, before, after, output; // of the depth
  Shape imageKernel, imageStrides, imageDilations, imagePads, imageOutput;
};
} // namespace

// Returns nullopt after it has refused the node.
static std::optional<VolumeWindow> readVolumeWindow(Node &node,
                                                    ArrayRef<int64_t> sizes,
                                                    ArrayRef<int64_t> kernel,
                                                    bool isTransposed = false) {
  auto w = isTransposed ? readTransposedWindow(node, sizes, kernel)
                        : readWindow(node, sizes, kernel);
  if (!w)
    return std::nullopt;
  auto rest = [](const Shape &values) {
    return Shape(ArrayRef(values).drop_front());
  };
  return VolumeWindow{
      w->kernel[0],       w->strides[0],
      w->dilations[0],    w->pads[0],
      w->pads[3],         w->output[0],
      rest(w->kernel),    rest(w->strides),
      rest(w->dilations), {w->pads[1], w->pads[2], w->pads[4], w->pads[5]},
      rest(w->output)};
}

// Pads the depth of N×C×D×H×W with a value.
static Value padDepth(Emitter &b, Value x, const VolumeWindow &w,
                      double value) {
  SmallVector<Value> parts;
  auto fill = [&](int64_t count) {
    Shape shape(shapeOf(x));
    shape[2] = count;
    if (count > 0)
      parts.push_back(b.splat(tensorType(x).clone(shape), value));
  };
  fill(w.before);
  parts.push_back(x);
  fill(w.after);
  return parts.size() == 1 ? x : b.concat(parts, 2);
}

// The slices of a padded volume that tap `k` of the depth reads, as images:
// (N·output)×C×H×W. Depth moves beside the batch, so one op of nn works on all
// slices at once.
static Value imagesOf(Emitter &b, Value padded, const VolumeWindow &w,
                      int64_t k) {
  Shape offsets(5, 0), strides(5, 1), shape(shapeOf(padded));
  offsets[2] = k * w.dilation;
  strides[2] = w.output > 1 ? w.stride : 1;
  shape[2] = w.output;
  Value part = b.slice(padded, offsets, strides, shape);
  Value first = b.transpose(part, {0, 2, 1, 3, 4});
  return b.reshape(first, {shape[0] * shape[2], shape[1], shape[3], shape[4]});
}

// Turns images back into a volume of `batch` samples.
static Value volumeOf(Emitter &b, Value images, int64_t batch) {
  ArrayRef<int64_t> s = shapeOf(images);
  Value split = b.reshape(images, {batch, s[0] / batch, s[1], s[2], s[3]});
  return b.transpose(split, {0, 2, 1, 3, 4});
}

static Shape pooledShape(Value images, const VolumeWindow &w) {
  return {shapeOf(images)[0], shapeOf(images)[1], w.imageOutput[0],
          w.imageOutput[1]};
}

// The taps of the depth become channels of images: C·kernel of them, those of
// one channel side by side, which is the order of the filter's elements. So one
// convolution adds up all taps, and groups of channels stay together.
static Value channelsOfTaps(Emitter &b, Value padded, const VolumeWindow &w) {
  SmallVector<Value> taps;
  for (int64_t k = 0; k < w.kernel; ++k) {
    Value images = imagesOf(b, padded, w, k);
    Shape split(shapeOf(images));
    split.insert(split.begin() + 2, 1);
    taps.push_back(b.reshape(images, split));
  }
  Value all = taps.size() == 1 ? taps[0] : b.concat(taps, 2);
  ArrayRef<int64_t> s = shapeOf(all);
  return b.reshape(all, {s[0], s[1] * s[2], s[3], s[4]});
}

// The filter of such images.
static Value mergeDepth(Emitter &b, Value filter) {
  ArrayRef<int64_t> f = shapeOf(filter);
  return b.reshape(filter, {f[0], f[1] * f[2], f[3], f[4]});
}

Value frontend::convolveVolume(Node &node, Value volume, Value filter,
                               int64_t group) {
  Emitter &b = node.b;
  ArrayRef<int64_t> s = shapeOf(volume), f = shapeOf(filter);
  auto w = readVolumeWindow(node, s.drop_front(2), f.drop_front(2));
  if (!w)
    return Value();
  Shape result = {s[0], f[0], w->output, w->imageOutput[0], w->imageOutput[1]};
  // The images have as many elements per tap of the depth as the result reads.
  Shape images = {s[0], w->output, s[1], w->kernel, s[3], s[4]};
  if (failed(node.checkShape(result)) || failed(node.checkShape(images)))
    return Value();
  Value x = channelsOfTaps(b, padDepth(b, volume, *w, 0), *w);
  Shape shape = {s[0] * w->output, f[0], w->imageOutput[0], w->imageOutput[1]};
  Value y = b.make<nn::Conv2dOp>(tensorType(x).clone(shape), x,
                                 mergeDepth(b, filter), w->imageStrides,
                                 w->imagePads, w->imageDilations, group);
  return volumeOf(b, y, s[0]);
}

Value frontend::convolveVolumeTransposed(Node &node, Value volume, Value filter,
                                         int64_t group) {
  Emitter &b = node.b;
  ArrayRef<int64_t> s = shapeOf(volume), f = shapeOf(filter);
  auto w = readVolumeWindow(node, s.drop_front(2), f.drop_front(2),
                            /*isTransposed=*/true);
  if (!w)
    return Value();
  // The depth that all windows cover, pads included. Each tap's images land
  // `stride` apart in it, starting at the tap's dilation; the pads are cut off
  // at the end.
  int64_t depth = w->before + w->output + w->after, channels = f[1] * group;
  Shape covered = {s[0], channels, depth, w->imageOutput[0], w->imageOutput[1]};
  Shape split = {s[0] * s[2], channels, w->kernel, w->imageOutput[0],
                 w->imageOutput[1]};
  if (failed(node.checkShape(covered)) || failed(node.checkShape(split)))
    return Value();
  Value images = b.reshape(b.transpose(volume, {0, 2, 1, 3, 4}),
                           {s[0] * s[2], s[1], s[3], s[4]});
  // As in a convolution, taps of the depth are channels.
  Shape shape = {split[0], channels * w->kernel, split[3], split[4]};
  Value taps = b.reshape(
      b.make<nn::Conv2dGradInputOp>(tensorType(images).clone(shape), images,
                                    mergeDepth(b, filter), w->imageStrides,
                                    w->imagePads, w->imageDilations, group),
      split);
  Value sum;
  for (int64_t k = 0; k < w->kernel; ++k) {
    Value y = b.reshape(b.slice(taps, 2, k, 1),
                        {split[0], channels, split[3], split[4]});
    Shape offsets(5, 0), strides(5, 1);
    offsets[2] = k * w->dilation;
    strides[2] = w->stride;
    Value placed = b.make<nn::PadOp>(tensorType(y).clone(covered),
                                     volumeOf(b, y, s[0]), offsets, strides);
    sum = sum ? b.binary<nn::AddOp>(sum, placed) : placed;
  }
  return b.slice(sum, 2, w->before, w->output);
}

// Reads the window of a pool. Dilation is supported along the depth alone.
static std::optional<VolumeWindow> readPool(Node &node, Value volume) {
  auto kernel = node.getInts("kernel_shape");
  if (!kernel)
    return (void)node.refuse("attribute 'kernel_shape' is missing"),
           std::nullopt;
  auto w = readVolumeWindow(node, shapeOf(volume).drop_front(2), *kernel);
  if (w && w->imageDilations != Shape{1, 1})
    return (void)node.refuse("attribute 'dilations' must be 1 for height and "
                             "width"),
           std::nullopt;
  return w;
}

// The maximum over depth comes first, at full height and width, so nn's pool
// runs once.
Value frontend::maxPoolVolume(Node &node, Value volume) {
  Emitter &b = node.b;
  auto w = readPool(node, volume);
  if (!w)
    return Value();
  Value padded =
      padDepth(b, volume, *w, -std::numeric_limits<double>::infinity());
  Value deepest;
  for (int64_t k = 0; k < w->kernel; ++k) {
    Value images = imagesOf(b, padded, *w, k);
    deepest = deepest ? b.binary<nn::MaximumOp>(deepest, images) : images;
  }
  Shape shape = pooledShape(deepest, *w);
  auto index = RankedTensorType::get(shape, b.builder.getI32Type());
  auto pool = b.op<nn::MaxPool2dOp>(
      TypeRange{tensorType(deepest).clone(shape), index}, deepest,
      w->imageKernel, w->imageStrides, w->imagePads);
  return volumeOf(b, pool.getResult(), shapeOf(volume)[0]);
}

// The mean of the images' means, each of as many elements; pads of the depth
// count or not as those of the image do.
Value frontend::averagePoolVolume(Node &node, Value volume) {
  Emitter &b = node.b;
  auto w = readPool(node, volume);
  if (!w)
    return Value();
  bool counted = node.getInt("count_include_pad", 0);
  if (counted && node.getInt("ceil_mode", 0))
    return (void)node.refuse("'ceil_mode' and 'count_include_pad' are not "
                             "supported together"),
           Value();
  Value padded = padDepth(b, volume, *w, 0), sum;
  for (int64_t k = 0; k < w->kernel; ++k) {
    Value images = imagesOf(b, padded, *w, k);
    sum = sum ? b.binary<nn::AddOp>(sum, images) : images;
  }
  Shape shape = pooledShape(sum, *w);
  Value means =
      b.make<nn::AvgPool2dOp>(tensorType(sum).clone(shape), sum, w->imageKernel,
                              w->imageStrides, w->imagePads, counted);
  Value y = volumeOf(b, means, shapeOf(volume)[0]);
  // The number of slices that each place of the depth takes the mean of.
  SmallVector<float> counts;
  int64_t depth = shapeOf(volume)[2];
  for (int64_t i = 0; i < w->output; ++i) {
    int64_t count = 0;
    for (int64_t k = 0; k < w->kernel; ++k) {
      int64_t at = i * w->stride + k * w->dilation - w->before;
      count += counted || (at >= 0 && at < depth);
    }
    counts.push_back(float(std::max<int64_t>(1, count)));
  }
  auto type = RankedTensorType::get({w->output}, b.builder.getF32Type());
  Value divisor = b.constant(DenseElementsAttr::get(type, ArrayRef(counts)));
  divisor = b.broadcast(b.reshape(divisor, {w->output, 1, 1}), shapeOf(y));
  return b.binary<nn::DivOp>(y, divisor);
}

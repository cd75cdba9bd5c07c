// Convolution and pooling. nn has them for two spatial dimensions only; one
// spatial dimension becomes an image of height 1 by a reshape. Attributes for
// automatic padding and for rounding the output size up are resolved to
// explicit pads here, so that no later stage knows them.
#include "frontends/onnx/Node.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {
// The attributes of a window over two spatial dimensions.
struct Window {
  Shape kernel, strides, dilations, pads; // pads: top, left, bottom, right
  Shape output;
};
} // namespace

// Reads the attributes of a node whose input has the spatial dimensions `sizes`
// (one or two). Returns nullopt after it has refused the node.
static std::optional<Window> window(Node &node, ArrayRef<int64_t> sizes,
                                    ArrayRef<int64_t> kernel) {
  auto refuse = [&](const Twine &reason) -> std::optional<Window> {
    (void)node.refuse(reason);
    return std::nullopt;
  };
  size_t rank = sizes.size();
  auto given = [&](StringRef name, int64_t absent, size_t length) {
    auto values = node.getInts(name);
    return values ? Shape(*values) : Shape(length, absent);
  };
  Window w;
  w.kernel = Shape(kernel);
  w.strides = given("strides", 1, rank);
  w.dilations = given("dilations", 1, rank);
  w.pads = given("pads", 0, 2 * rank);
  if (w.kernel.size() != rank || w.strides.size() != rank ||
      w.dilations.size() != rank || w.pads.size() != 2 * rank)
    return refuse(
        "kernel, strides, dilations and pads must match the rank of the input");
  std::string automatic = node.getString("auto_pad", "NOTSET");
  bool ceil = node.getInt("ceil_mode", 0);
  constexpr int64_t limit = 1 << 24;
  for (size_t i = 0; i < rank; ++i) {
    for (int64_t value : {w.kernel[i], w.strides[i], w.dilations[i]})
      if (value < 1 || value > limit)
        return refuse("kernel, strides and dilations must be positive");
    int64_t span = (w.kernel[i] - 1) * w.dilations[i] + 1;
    int64_t &before = w.pads[i], &after = w.pads[i + rank];
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      int64_t out = (sizes[i] + w.strides[i] - 1) / w.strides[i];
      int64_t total =
          std::max<int64_t>(0, (out - 1) * w.strides[i] + span - sizes[i]);
      before = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      after = total - before;
    } else if (automatic == "VALID") {
      before = after = 0;
    } else if (automatic != "NOTSET") {
      return refuse("attribute 'auto_pad' is '" + automatic +
                    "'; use NOTSET, VALID, SAME_UPPER or SAME_LOWER");
    }
    if (before < 0 || after < 0 || before > limit || after > limit)
      return refuse("pads must not be negative");
    int64_t room = sizes[i] + before + after - span;
    if (room < 0)
      return refuse("the window is larger than the padded input");
    if (int64_t rest = room % w.strides[i]; ceil && rest != 0) {
      // One more window, if it begins inside the input or the pad before it.
      int64_t extra = w.strides[i] - rest;
      if (room + extra < sizes[i] + before) {
        after += extra;
        room += extra;
      }
    }
    w.output.push_back(room / w.strides[i] + 1);
  }
  if (rank == 1) { // an image of height 1
    for (Shape *values : {&w.kernel, &w.strides, &w.dilations, &w.output})
      values->insert(values->begin(), 1);
    w.pads = {0, w.pads[0], 0, w.pads[1]};
  }
  return w;
}

// Returns N×C×L as N×C×1×L. Refuses more than two spatial dimensions and
// returns null.
static Value image(Node &node, Value x) {
  if (rankOf(x) == 4)
    return x;
  if (rankOf(x) != 3)
    return (void)node.refuse("the input has " + Twine(rankOf(x) - 2) +
                             " spatial dimensions; only 1 and 2 are supported"),
           Value();
  ArrayRef<int64_t> s = shapeOf(x);
  return node.b.reshape(x, {s[0], s[1], 1, s[2]});
}

// Removes the dimension that image() has added to an input of rank `rank`.
static Value likeInput(Emitter &b, Value y, int64_t rank) {
  if (rank == 4)
    return y;
  ArrayRef<int64_t> s = shapeOf(y);
  return b.reshape(y, {s[0], s[1], s[3]});
}

// The bias is added separately; nn.conv2d has none.
static LogicalResult conv(Node &node) {
  if (failed(node.expectInputs(2, 3)) ||
      failed(node.expectFloat(node.input(0))) ||
      failed(node.expectFloat(node.input(1))))
    return failure();
  Emitter &b = node.b;
  int64_t rank = rankOf(node.input(0)), group = node.getInt("group", 1);
  Value x = image(node, node.input(0));
  if (!x)
    return failure();
  if (rankOf(node.input(1)) != rank)
    return node.refuse("the filter must have the rank of the input");
  Value filter = image(node, node.input(1));
  ArrayRef<int64_t> f = shapeOf(filter), s = shapeOf(x);
  if (group < 1 || s[1] != f[1] * group || f[0] % group != 0)
    return node.refuse("the filter has " + Twine(f[1]) +
                       " channels per group in " + Twine(group) +
                       " groups, but the input has " + Twine(s[1]));
  ArrayRef<int64_t> kernel = shapeOf(node.input(1)).drop_front(2);
  if (auto declared = node.getInts("kernel_shape"))
    if (ArrayRef<int64_t>(*declared) != kernel)
      return node.refuse(
          "attribute 'kernel_shape' must match the shape of the filter");
  auto w = window(node, shapeOf(node.input(0)).drop_front(2), kernel);
  if (!w)
    return failure();
  Shape shape = {s[0], f[0], w->output[0], w->output[1]};
  if (failed(node.checkShape(shape)))
    return failure();
  Value y = b.make<nn::Conv2dOp>(tensorType(x).clone(shape), x, filter,
                                 w->strides, w->pads, w->dilations, group);
  y = likeInput(b, y, rank);
  Value bias = node.input(2);
  if (bias && shapeOf(bias) != ArrayRef<int64_t>({f[0]}))
    return node.refuse("the bias must have one element per output channel");
  // Exporters write a missing bias as zeros.
  if (!bias || matchSplat(bias) == 0.0)
    return node.result(y);
  Shape perChannel(rank - 1, 1);
  perChannel[0] = f[0];
  bias = b.broadcast(b.reshape(bias, perChannel), shapeOf(y));
  return node.result(b.binary<nn::AddOp>(y, bias));
}

static LogicalResult maxPool(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  if (node.isUsed(1))
    return node.refuse("output 'Indices' is not supported, but is used");
  int64_t rank = rankOf(node.input(0));
  Value x = image(node, node.input(0));
  auto kernel = node.getInts("kernel_shape");
  if (!x || !kernel)
    return x ? node.refuse("attribute 'kernel_shape' is missing") : failure();
  auto w = window(node, shapeOf(node.input(0)).drop_front(2), *kernel);
  if (!w)
    return failure();
  if (w->dilations != Shape{1, 1})
    return node.refuse("attribute 'dilations' is " + printShape(w->dilations) +
                       "; only 1 is supported");
  Shape shape = {shapeOf(x)[0], shapeOf(x)[1], w->output[0], w->output[1]};
  auto index = RankedTensorType::get(shape, b.builder.getI32Type());
  auto pool =
      b.op<nn::MaxPool2dOp>(TypeRange{tensorType(x).clone(shape), index}, x,
                            w->kernel, w->strides, w->pads);
  return node.result(likeInput(b, pool.getResult(), rank));
}

// With count_include_pad, the pads that ceil_mode adds would count as well,
// which ONNX does not mean; the combination is refused.
static LogicalResult averagePool(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  int64_t rank = rankOf(node.input(0));
  Value x = image(node, node.input(0));
  auto kernel = node.getInts("kernel_shape");
  if (!x || !kernel)
    return x ? node.refuse("attribute 'kernel_shape' is missing") : failure();
  auto w = window(node, shapeOf(node.input(0)).drop_front(2), *kernel);
  if (!w)
    return failure();
  if (w->dilations != Shape{1, 1})
    return node.refuse("attribute 'dilations' is " + printShape(w->dilations) +
                       "; only 1 is supported");
  bool counted = node.getInt("count_include_pad", 0);
  if (counted && node.getInt("ceil_mode", 0))
    return node.refuse(
        "'ceil_mode' and 'count_include_pad' are not supported together");
  Shape shape = {shapeOf(x)[0], shapeOf(x)[1], w->output[0], w->output[1]};
  Value y = b.make<nn::AvgPool2dOp>(tensorType(x).clone(shape), x, w->kernel,
                                    w->strides, w->pads, counted);
  return node.result(likeInput(b, y, rank));
}

template <bool isMax> static LogicalResult globalPool(Node &node) {
  if (failed(node.expectInputs(1, 1)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Value x = node.input(0);
  if (rankOf(x) < 3 || tensorType(x).getNumElements() == 0)
    return node.refuse("the input must have at least one spatial dimension and "
                       "must not be empty");
  Shape axes;
  for (int64_t i = 2; i < rankOf(x); ++i)
    axes.push_back(i);
  return node.result(isMax ? node.b.reduce(nn::ReduceKind::max, x, axes)
                           : node.b.mean(x, axes));
}

void frontend::registerConvolution(HandlerTable &table) {
  table.add("Conv", 11, conv);
  table.add("MaxPool", 12, maxPool);
  table.add("AveragePool", 11, averagePool);
  table.add("GlobalAveragePool", 1, globalPool<false>);
  table.add("GlobalMaxPool", 1, globalPool<true>);
}

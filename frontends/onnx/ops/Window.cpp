// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Resolves the attributes of windows. The rules are those of ONNX's Conv,
// ConvTranspose and pooling ops. Each value has a limit, so that no sum or
// product of them overflows.
#include "frontends/onnx/ops/Window.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

Value frontend::image(Node &node, Value x) {
  if (rankOf(x) == 4)
    return x;
  if (rankOf(x) != 3)
    return (void)node.refuse("the input has " + Twine(rankOf(x) - 2) +
                             " spatial dimensions; only 1 and 2 are supported"),
           Value();
  ArrayRef<int64_t> s = shapeOf(x);
  return node.b.reshape(x, {s[0], s[1], 1, s[2]});
}

Value frontend::likeInput(Emitter &b, Value y, int64_t rank) {
  if (rank != 3)
    return y;
  ArrayRef<int64_t> s = shapeOf(y);
  return b.reshape(y, {s[0], s[1], s[3]});
}

// The largest kernel, stride, dilation, pad or transposed input size. Products
// of two of them and a sum stay far below 2^63.
static constexpr int64_t kLimit = 1 << 24;

static std::nullopt_t refuse(Node &node, const Twine &reason) {
  (void)node.refuse(reason);
  return std::nullopt;
}

// Reads what all windows have. `output` is left empty.
static std::optional<Window> readAttributes(Node &node, size_t rank,
                                            ArrayRef<int64_t> kernel) {
  auto given = [&](StringRef name, int64_t absent, size_t length) {
    auto values = node.getInts(name);
    return values ? Shape(*values) : Shape(length, absent);
  };
  Window w;
  w.kernel = Shape(kernel);
  w.strides = given("strides", 1, rank);
  w.dilations = given("dilations", 1, rank);
  w.pads = given("pads", 0, 2 * rank);
  w.extra = Shape(rank, 0);
  if (w.kernel.size() != rank || w.strides.size() != rank ||
      w.dilations.size() != rank || w.pads.size() != 2 * rank)
    return refuse(
        node,
        "kernel, strides, dilations and pads must match the rank of the input");
  for (const Shape *values : {&w.kernel, &w.strides, &w.dilations})
    for (int64_t value : *values)
      if (value < 1 || value > kLimit)
        return refuse(node, "kernel, strides and dilations must be positive");
  return w;
}

static LogicalResult checkPads(Node &node, int64_t before, int64_t after) {
  if (before < 0 || after < 0 || before > kLimit || after > kLimit)
    return node.refuse("pads must not be negative");
  return success();
}

// Returns the node's auto_pad, or nullopt if it has no meaning.
static std::optional<std::string> readAutoPad(Node &node) {
  std::string automatic = node.getString("auto_pad", "NOTSET");
  if (automatic != "SAME_UPPER" && automatic != "SAME_LOWER" &&
      automatic != "VALID" && automatic != "NOTSET")
    return refuse(node, "attribute 'auto_pad' is '" + automatic +
                            "'; use NOTSET, VALID, SAME_UPPER or SAME_LOWER");
  return automatic;
}

// Inserts the height of an image that has a width only. nn's pads are top,
// left, bottom, right.
static Window overImage(Window w) {
  if (w.kernel.size() != 1)
    return w;
  for (Shape *values : {&w.kernel, &w.strides, &w.dilations, &w.output})
    values->insert(values->begin(), 1);
  w.pads = {0, w.pads[0], 0, w.pads[1]};
  w.extra.insert(w.extra.begin(), 0);
  return w;
}

std::optional<Window> frontend::readWindow(Node &node, ArrayRef<int64_t> sizes,
                                           ArrayRef<int64_t> kernel) {
  std::optional<Window> w = readPlainWindow(node, sizes, kernel);
  return w ? std::optional(overImage(*w)) : std::nullopt;
}

std::optional<Window> frontend::readPlainWindow(Node &node,
                                                ArrayRef<int64_t> sizes,
                                                ArrayRef<int64_t> kernel) {
  size_t rank = sizes.size();
  std::optional<Window> w = readAttributes(node, rank, kernel);
  std::optional<std::string> automatic = w ? readAutoPad(node) : std::nullopt;
  if (!automatic)
    return std::nullopt;
  bool ceil = node.getInt("ceil_mode", 0);
  for (size_t i = 0; i < rank; ++i) {
    int64_t stride = w->strides[i];
    // The input elements from the window's first to its last, gaps included.
    int64_t span = (w->kernel[i] - 1) * w->dilations[i] + 1;
    int64_t &before = w->pads[i], &after = w->pads[i + rank];
    if (*automatic == "SAME_UPPER" || *automatic == "SAME_LOWER") {
      // SAME: the output has ceil(size / stride) elements, and the pads are
      // what that needs. An odd one goes to the end (UPPER) or to the start
      // (LOWER).
      int64_t out = (sizes[i] + stride - 1) / stride;
      int64_t total =
          std::max<int64_t>(0, (out - 1) * stride + span - sizes[i]);
      before = *automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      after = total - before;
    } else if (*automatic == "VALID") {
      before = after = 0;
    }
    if (failed(checkPads(node, before, after)))
      return std::nullopt;
    // Places that the window can move by.
    int64_t room = sizes[i] + before + after - span;
    // ceil_mode takes a window that exceeds the input by less than a stride.
    if (room < 0 && ceil && -room < stride) {
      w->extra[i] = -room;
      after += -room;
      room = 0;
    }
    if (room < 0)
      return refuse(node, "the window is larger than the padded input");
    if (int64_t rest = room % stride; ceil && rest != 0) {
      // One more window, if it begins inside the input or the pad before it.
      int64_t extra = stride - rest;
      if (room + extra < sizes[i] + before) {
        after += extra;
        room += extra;
        w->extra[i] = extra;
      }
    }
    w->output.push_back(room / stride + 1);
  }
  return w;
}

// Computes the output's size along dimension `i` of a transposed window, and
// its pads if they are not given. `extra` elements are added at the end.
// `target` is the output's size if it is what determines the pads. ONNX: output
// = stride · (size - 1) + output_padding + span - pads.
static LogicalResult resolveTransposed(Node &node, Window &w, size_t i,
                                       int64_t size, int64_t extra,
                                       std::optional<int64_t> target,
                                       StringRef automatic) {
  int64_t stride = w.strides[i];
  int64_t &before = w.pads[i], &after = w.pads[i + w.strides.size()];
  // The size that all windows cover together.
  int64_t covered =
      (size - 1) * stride + (w.kernel[i] - 1) * w.dilations[i] + 1;
  if (target) {
    int64_t total = std::max<int64_t>(0, covered + extra - *target);
    before = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
    after = total - before;
    extra = *target - covered + total;
  } else if (automatic == "VALID") {
    before = after = 0;
  }
  if (failed(checkPads(node, before, after)))
    return failure();
  // An extent that is added at the end takes away from the pad there.
  int64_t both = std::min(extra, after);
  extra -= both, after -= both;
  if (extra >= stride)
    return node.refuse("the output extends " + Twine(extra) +
                       " elements past the last window in dimension " +
                       Twine(i) + "; fewer than the stride, " + Twine(stride) +
                       ", are supported");
  int64_t out = covered + extra - before - after;
  if (out < 1)
    return node.refuse("the windows cover " + Twine(covered + extra) +
                       " elements of dimension " + Twine(i) +
                       ", but the pads " + printShape(w.pads) +
                       " leave none of them");
  w.output.push_back(out);
  return success();
}

std::optional<Window> frontend::readTransposedWindow(Node &node,
                                                     ArrayRef<int64_t> sizes,
                                                     ArrayRef<int64_t> kernel) {
  size_t rank = sizes.size();
  std::optional<Window> w = readAttributes(node, rank, kernel);
  std::optional<std::string> automatic = w ? readAutoPad(node) : std::nullopt;
  if (!automatic)
    return std::nullopt;
  auto extras = node.getInts("output_padding");
  auto targets = node.getInts("output_shape");
  if ((extras && extras->size() != rank) ||
      (targets && targets->size() != rank))
    return refuse(node, "'output_padding' and 'output_shape' must have one "
                        "entry per spatial dimension");
  for (size_t i = 0; i < rank; ++i) {
    if (sizes[i] < 1 || sizes[i] > kLimit)
      return refuse(node, "spatial dimension " + Twine(i) + " has " +
                              Twine(sizes[i]) + " elements; 1 to " +
                              Twine(kLimit) + " are supported");
    int64_t extra = extras ? (*extras)[i] : 0;
    if (extra < 0 || extra > kLimit)
      return refuse(node, "'output_padding' is " + printShape(*extras) +
                              "; it must not be negative");
    std::optional<int64_t> target;
    if (targets)
      target = (*targets)[i];
    else if (*automatic == "SAME_UPPER" || *automatic == "SAME_LOWER")
      // SAME means the inverse of a convolution with SAME pads.
      target = sizes[i] * w->strides[i];
    if (targets && (*target < 1 || *target > kLimit))
      return refuse(node, "'output_shape' is " + printShape(*targets) +
                              "; sizes from 1 to " + Twine(kLimit) +
                              " are supported");
    if (failed(resolveTransposed(node, *w, i, sizes[i], extra, target,
                                 *automatic)))
      return std::nullopt;
  }
  return overImage(*w);
}

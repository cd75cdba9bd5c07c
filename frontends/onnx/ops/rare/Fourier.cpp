// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// DFT, STFT and the windows of signals. A transform is a product with a
// constant matrix of cosines and sines: exact to rounding for every length,
// with the adjoint of a product. Complex numbers are pairs in the last
// dimension.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "frontends/onnx/ops/Gather.h"

#include <cmath>
#include <numbers>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {
// A transform of `length` points, from `from` numbers of `parts` (1: real, 2:
// complex) to `to` numbers of `partsTo`.
struct Transform {
  int64_t length, from, parts, to, partsTo;
  bool inverse;
};
} // namespace

// The largest matrix: 64 MiB.
static constexpr int64_t kMostEntries = 1 << 24;

// Returns the factor of part `k` of input number `j` in part `l` of output `m`.
// A complex product in real parts: cosines on the diagonal, sines with opposite
// signs beside it. The inverse of a half spectrum takes each inner frequency
// twice, for its conjugate.
static double entryOf(const Transform &t, int64_t j, int64_t k, int64_t m,
                      int64_t l) {
  if (j >= t.length)
    return 0; // cut off
  // The angle of a product of indices, reduced before it loses digits.
  double angle =
      2 * std::numbers::pi * double((j * m) % t.length) / double(t.length);
  bool isHalf = t.inverse && t.partsTo == 1; // of a spectrum of real numbers
  double weight = t.inverse ? 1 / double(t.length) : 1;
  if (isHalf) {
    if (2 * j > t.length)
      return 0;
    weight *= j == 0 || 2 * j == t.length ? 1 : 2;
  }
  double sine = t.inverse ? std::sin(angle) : -std::sin(angle);
  if (k == l)
    return weight * std::cos(angle);
  return k == 0 ? weight * sine : -weight * sine;
}

// Transforms the last two dimensions, numbers and parts. The cost is length²
// per row, which is what an FFT saves; models transform short frames.
static Value transformed(Emitter &b, Value x, const Transform &t) {
  int64_t width = t.from * t.parts, columns = t.to * t.partsTo;
  std::vector<float> entries;
  entries.reserve(width * columns);
  for (int64_t i = 0; i < width; ++i)
    for (int64_t c = 0; c < columns; ++c)
      entries.push_back(float(
          entryOf(t, i / t.parts, i % t.parts, c / t.partsTo, c % t.partsTo)));
  auto type = RankedTensorType::get({width, columns}, b.builder.getF32Type());
  Value matrix = b.constant(DenseElementsAttr::get(type, ArrayRef(entries)));
  Shape shape(shapeOf(x).drop_back(2));
  int64_t rows = tensorType(x).getNumElements() / std::max<int64_t>(1, width);
  Value y = b.matmul(b.reshape(x, {rows, width}), matrix, {rows, columns});
  shape.append({t.to, t.partsTo});
  return b.reshape(y, shape);
}

// Charges a constant of so many floats, each of which takes a cosine. Budgets
// bound what a small hostile file can make the importer compute.
static LogicalResult chargeConstant(Node &node, int64_t entries) {
  constexpr int64_t stepsPerEntry = 8;
  for (auto [cost, amount] :
       {std::pair(Cost::foldedBytes, int64_t(sizeof(float)) * entries),
        std::pair(Cost::foldedSteps, stepsPerEntry * entries)})
    if (!node.b.spend(cost, amount))
      return node.refuse("the nodes up to this one need " +
                         Budgets::exceeded(cost));
  return success();
}

// `from` may differ from `length`: a longer input is cut, a shorter one padded
// with zeros.
static LogicalResult expectMatrix(Node &node, const Transform &t) {
  // Each is bounded before they are multiplied.
  for (int64_t size : {t.length, t.from, t.to})
    if (size < 1 || size > kMostEntries)
      return node.refuse("the transform is empty or too long");
  if (t.from * t.parts > kMostEntries / (t.to * t.partsTo))
    return node.refuse("a transform of " + Twine(t.from) + " to " +
                       Twine(t.to) + " numbers is too long");
  return chargeConstant(node, t.from * t.parts * t.to * t.partsTo);
}

// The axis is an attribute before opset 20.
static LogicalResult dft(Node &node) {
  if (failed(node.expectInputs(1, 3)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  std::optional<int64_t> at =
      node.getInt("axis", node.version < 20 ? 1 : rankOf(x) - 2);
  if (node.has(2))
    at = node.wholeNumber(2, "'axis'");
  auto axis = at ? node.axis(*at, rankOf(x)) : std::nullopt;
  if (!axis)
    return failure();
  int64_t parts = shapeOf(x).back();
  if (rankOf(x) < 2 || *axis == rankOf(x) - 1 || (parts != 1 && parts != 2) ||
      tensorType(x).getNumElements() == 0)
    return node.refuse(
        "the input must have real or complex numbers in its last "
        "dimension, which is not transformed");
  bool inverse = node.getInt("inverse", 0), half = node.getInt("onesided", 0);
  int64_t from = shapeOf(x)[*axis];
  // A half spectrum of n / 2 + 1 numbers stands for an even length unless
  // dft_length says otherwise.
  std::optional<int64_t> length = inverse && half ? 2 * (from - 1) : from;
  if (node.has(1) && !(length = node.wholeNumber(1, "'dft_length'")))
    return failure();
  Transform t{*length, from, parts, *length, 2, inverse};
  if (half && inverse)
    t.partsTo = 1;
  else if (half)
    t.to = *length / 2 + 1;
  if (failed(expectMatrix(node, t)))
    return failure();
  // The transform works on the last two dimensions; the swap is its own
  // inverse.
  Shape swap;
  for (int64_t i = 0; i < rankOf(x); ++i)
    swap.push_back(i);
  std::swap(swap[*axis], swap[rankOf(x) - 2]);
  return node.result(
      b.transpose(transformed(b, b.transpose(x, swap), t), swap));
}

// Inputs: the signal B×T×(1 or 2), the step, a window, the length of a frame.
// Without centering or padding: ONNX leaves both to the exporter. The result is
// B×frames×bins×2.
static LogicalResult stft(Node &node) {
  if (failed(node.expectInputs(2, 4)) ||
      failed(node.expectFloat(node.input(0))))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0), window = node.input(2);
  auto step = node.wholeNumber(1, "'frame_step'");
  std::optional<int64_t> length;
  if (step && node.has(3))
    length = node.wholeNumber(3, "'frame_length'");
  else if (step && window && rankOf(window) == 1)
    length = shapeOf(window)[0];
  else if (step)
    return node.refuse("neither 'window' nor 'frame_length' is given");
  if (!length)
    return failure();
  if (rankOf(x) == 2)
    x = b.reshape(x, {shapeOf(x)[0], shapeOf(x)[1], 1});
  ArrayRef<int64_t> s = shapeOf(x);
  if (rankOf(x) != 3 || (s[2] != 1 && s[2] != 2) || *step < 1 || *length < 1 ||
      *length > s[1] ||
      (window && shapeOf(window) != ArrayRef<int64_t>({*length})))
    return node.refuse(
        "the signal must be B×T×1 or B×T×2, at least as long as a "
        "frame, and the window as long as a frame");
  int64_t frames = (s[1] - *length) / *step + 1;
  bool half = node.getInt("onesided", 1) && s[2] == 1;
  Transform t{*length, *length, s[2], half ? *length / 2 + 1 : *length,
              2,       false};
  if (failed(expectMatrix(node, t)) ||
      failed(node.checkShape({s[0], frames, *length, s[2]})))
    return failure();
  if (frames > kMostIntegers / *length)
    return node.refuse("more than " + Twine(kMostIntegers) +
                       " elements in frames are not supported");
  // Overlapping frames are a gather along time, whose adjoint adds up the
  // overlaps.
  SmallVector<int64_t> places;
  for (int64_t f = 0; f < frames; ++f)
    for (int64_t i = 0; i < *length; ++i)
      places.push_back(f * *step + i);
  Shape framed = {s[0], frames, *length, s[2]};
  Value parts = b.reshape(gatherAlong(b, x, b.integers(places), 1), framed);
  if (window)
    parts = b.binary<nn::MulOp>(
        parts, b.broadcast(b.reshape(window, {*length, 1}), framed));
  return node.result(transformed(b, parts, t));
}

// Σ over k of coefficient k · cos(2πki / n), of a periodic window n = size, of
// a symmetric one size - 1.
static LogicalResult window(Node &node, ArrayRef<double> coefficients) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  auto size = node.wholeNumber(0, "'size'");
  if (!size)
    return failure();
  if (*size < 0 || *size > kMostEntries)
    return node.refuse("'size' is " + Twine(*size) +
                       ", which is negative or too large");
  if (failed(chargeConstant(node, *size)))
    return failure();
  // n is 0 for a symmetric window of one sample, whose angle is 0.
  double n = double(node.getInt("periodic", 1) ? *size : *size - 1);
  SmallVector<float> values;
  for (int64_t i = 0; i < *size; ++i) {
    double sum = 0;
    for (auto [k, coefficient] : llvm::enumerate(coefficients))
      sum +=
          coefficient *
          (n == 0 ? 1
                  : std::cos(2 * std::numbers::pi * double(k) * double(i) / n));
    values.push_back(float(sum));
  }
  auto type = RankedTensorType::get({*size}, node.b.builder.getF32Type());
  return node.result(
      node.b.constant(DenseElementsAttr::get(type, ArrayRef(values))));
}

// Triangles of equal width on the mel scale, in which each bin of a spectrum
// has its weights: (dft_length / 2 + 1)×bins. The scale is HTK's, 2595 log10(1
// + f / 700). The edges are whole bins, as the specification computes them.
static LogicalResult melWeights(Node &node) {
  if (failed(node.expectInputs(5, 5)))
    return failure();
  auto bins = node.wholeNumber(0, "'num_mel_bins'");
  auto length = bins ? node.wholeNumber(1, "'dft_length'") : std::nullopt;
  auto rate = length ? node.wholeNumber(2, "'sample_rate'") : std::nullopt;
  auto lower = rate ? node.number(3, "'lower_edge_hertz'") : std::nullopt;
  auto upper = lower ? node.number(4, "'upper_edge_hertz'") : std::nullopt;
  if (!upper)
    return failure();
  if (*bins < 1 || *length < 1 || *rate < 1 || *bins > kMostEntries ||
      *length > kMostEntries || (*length / 2 + 1) * *bins > kMostEntries ||
      !(*lower >= 0 && *lower <= *upper && *upper <= double(*rate)))
    return node.refuse("the numbers of bins and samples must be positive and "
                       "not too large, and the edges between 0 and the rate");
  int64_t rows = *length / 2 + 1;
  if (failed(chargeConstant(node, rows * *bins)))
    return failure();
  auto toMel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  double least = toMel(*lower);
  double step = (toMel(*upper) - least) / double(*bins + 2);
  // The place in the spectrum of edge `i`: each triangle has three.
  auto place = [&](int64_t i) {
    double hertz =
        700 * (std::pow(10.0, (double(i) * step + least) / 2595) - 1);
    double at = std::floor(double(*length + 1) * hertz / double(*rate));
    return std::min(static_cast<int64_t>(at), rows - 1);
  };
  std::vector<float> values(rows * *bins);
  for (int64_t i = 0; i < *bins; ++i) {
    int64_t left = place(i), centre = place(i + 1), right = place(i + 2);
    if (left == centre)
      values[centre * *bins + i] = 1;
    for (int64_t j = left; j <= centre && left < centre; ++j)
      values[j * *bins + i] = float(j - left) / float(centre - left);
    for (int64_t j = centre; j < right; ++j)
      values[j * *bins + i] = float(right - j) / float(right - centre);
  }
  auto type = RankedTensorType::get({rows, *bins}, node.b.builder.getF32Type());
  return node.result(
      node.b.constant(DenseElementsAttr::get(type, ArrayRef<float>(values))));
}

static LogicalResult hann(Node &node) { return window(node, {0.5, -0.5}); }
static LogicalResult hamming(Node &node) {
  return window(node, {25.0 / 46, -21.0 / 46});
}
static LogicalResult blackman(Node &node) {
  return window(node, {0.42, -0.5, 0.08});
}

void frontend::registerFourier(HandlerTable &table) {
  table.add("DFT", 17, dft);
  table.add("STFT", 17, stft);
  table.add("MelWeightMatrix", 17, melWeights);
  table.add("HannWindow", 17, hann);
  table.add("HammingWindow", 17, hamming);
  table.add("BlackmanWindow", 17, blackman);
}

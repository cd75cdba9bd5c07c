// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference of norms, their gradients, and rotary embedding. Norms over
// rows and over channels share their code: they differ only in which elements
// belong to one statistic.
#include "compiler/dialects/nn/reference/Families.h"

#include <cmath>

using namespace mlir;

namespace fsdpc::nn::reference {

namespace {
/// The elements of `input` as rows of the last axis.
struct Rows {
  int64_t width, count;
  // Divides by the width: a row must have an element.
  explicit Rows(const ReferenceTensor &input)
      : width(input.shape.back()), count(input.size() / width) {}
};

/// The channels of `input` (axis 1), each a set of `count` elements.
struct Channels {
  int64_t number, inner, outer, count;
  explicit Channels(const ReferenceTensor &input)
      : number(input.shape[1]),
        inner(llvm::product_of(ArrayRef<int64_t>(input.shape).drop_front(2))),
        outer(input.shape[0]), count(inner * outer) {}

  // Visits the positions of a channel's elements in N×C×(inner) order.
  template <typename Fn> void forEach(int64_t channel, Fn visit) const {
    for (int64_t i = 0; i < outer; ++i)
      for (int64_t j = 0; j < inner; ++j)
        visit((i * number + channel) * inner + j);
  }
};
} // namespace

/// Evaluates layer_norm, or rms_norm if there is no mean.
static void norm(const ReferenceTensor &x, const ReferenceTensor *weight,
                 const ReferenceTensor *bias, double epsilon,
                 ReferenceTensor &out, ReferenceTensor *mean,
                 ReferenceTensor &rstd) {
  Rows rows(x);
  for (int64_t r = 0; r < rows.count; ++r) {
    const double *row = &x.floats[r * rows.width];
    // Two passes, as in the kernels: E[x²] - E[x]² would cancel even in
    // doubles. Without a mean the values are not centred.
    double center = 0, square = 0;
    for (int64_t j = 0; mean && j < rows.width; ++j)
      center += row[j] / rows.width;
    for (int64_t j = 0; j < rows.width; ++j)
      square += (row[j] - center) * (row[j] - center) / rows.width;
    double scale = 1 / std::sqrt(square + epsilon);
    for (int64_t j = 0; j < rows.width; ++j)
      out.floats[r * rows.width + j] =
          (row[j] - center) * scale * (weight ? weight->floats[j] : 1) +
          (bias ? bias->floats[j] : 0);
    rstd.floats[r] = scale;
    if (mean)
      mean->floats[r] = center;
  }
}

// dx = rstd · (g - mean(g) - x̂ · mean(g · x̂)) with g = grad · weight;
// rms_norm lacks the term mean(g), because it does not centre.
static void normGrad(const ReferenceTensor &grad, const ReferenceTensor &x,
                     const ReferenceTensor *weight, const ReferenceTensor *mean,
                     const ReferenceTensor &rstd, ReferenceTensor &out) {
  Rows rows(x);
  auto g = [&](int64_t r, int64_t j) {
    return grad.floats[r * rows.width + j] * (weight ? weight->floats[j] : 1);
  };
  // x̂ of an element. For rms_norm the mean is absent and counts as 0.
  auto normalised = [&](int64_t r, int64_t j) {
    return (x.floats[r * rows.width + j] - (mean ? mean->floats[r] : 0)) *
           rstd.floats[r];
  };
  for (int64_t r = 0; r < rows.count; ++r) {
    double meanOfGrad = 0, meanOfProduct = 0;
    for (int64_t j = 0; j < rows.width; ++j) {
      if (mean)
        meanOfGrad += g(r, j) / rows.width;
      meanOfProduct += g(r, j) * normalised(r, j) / rows.width;
    }
    for (int64_t j = 0; j < rows.width; ++j)
      out.floats[r * rows.width + j] =
          rstd.floats[r] *
          (g(r, j) - meanOfGrad - normalised(r, j) * meanOfProduct);
  }
}

// dweight = Σ grad · x̂ over rows.
static void normWeightGrad(const ReferenceTensor &grad,
                           const ReferenceTensor &x,
                           const ReferenceTensor *mean,
                           const ReferenceTensor &rstd, ReferenceTensor &out) {
  Rows rows(x);
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t r = i / rows.width;
    out.floats[i % rows.width] += grad.floats[i] *
                                  (x.floats[i] - (mean ? mean->floats[r] : 0)) *
                                  rstd.floats[r];
  }
}

// Operands are input, weight and bias; results are the output, and per channel
// the mean and the variance, which divides by the number of elements.
static void batchNorm(Inputs in, double epsilon, ReferenceTensors &out) {
  const auto &x = in[0].floats;
  Channels channels(in[0]);
  for (int64_t c = 0; c < channels.number; ++c) {
    double mean = 0, variance = 0;
    channels.forEach(c, [&](int64_t i) { mean += x[i] / channels.count; });
    channels.forEach(c, [&](int64_t i) {
      variance += (x[i] - mean) * (x[i] - mean) / channels.count;
    });
    double scale = in[1].floats[c] / std::sqrt(variance + epsilon);
    channels.forEach(c, [&](int64_t i) {
      out[0].floats[i] = (x[i] - mean) * scale + in[2].floats[c];
    });
    out[1].floats[c] = mean;
    out[2].floats[c] = variance;
  }
}

// Operands are grad, input, weight, mean and variance; results are dinput,
// dweight and dbias. The sums of a channel must be complete before dinput.
static void batchNormGrad(Inputs in, double epsilon, ReferenceTensors &out) {
  const auto &grad = in[0].floats, &x = in[1].floats;
  Channels channels(in[1]);
  for (int64_t c = 0; c < channels.number; ++c) {
    double mean = in[3].floats[c];
    double rstd = 1 / std::sqrt(in[4].floats[c] + epsilon);
    double &dweight = out[1].floats[c], &dbias = out[2].floats[c];
    channels.forEach(c, [&](int64_t i) {
      dweight += grad[i] * (x[i] - mean) * rstd;
      dbias += grad[i];
    });
    channels.forEach(c, [&](int64_t i) {
      double normalised = (x[i] - mean) * rstd;
      out[0].floats[i] =
          in[2].floats[c] * rstd *
          (grad[i] - (dbias + normalised * dweight) / channels.count);
    });
  }
}

// x · cos + rotate_half(x) · sin, or x · cos - rotate_half(x · sin) if
// transposed: there the table is read at the other half's index.
static void rotary(RotaryOp op, Inputs in, ReferenceTensors &outs) {
  ReferenceTensor &out = outs.front();
  int64_t width = out.shape.back(), half = width / 2;
  const auto &x = in[0].floats;
  forEachIndex(out.shape, [&](Index index, int64_t i) {
    // The element at the same place of the other half; rotate_half negates it
    // for the first half.
    bool isFirst = index.back() < half;
    SmallVector<int64_t> other(index);
    other.back() += isFirst ? half : -half;
    auto table = [&](const ReferenceTensor &tensor, Index at) {
      return tensor.floats[broadcastPosition(tensor.shape, at)];
    };
    double rotated = x[positionOf(out.shape, other)] * (isFirst ? -1 : 1);
    out.floats[i] = x[i] * table(in[1], index) +
                    (op.getTransposed() ? -rotated * table(in[2], other)
                                        : rotated * table(in[2], index));
  });
}

void addNorms(ReferenceTable &table) {
  table.add<LayerNormOp>([](LayerNormOp op, Inputs in, ReferenceTensors &out) {
    norm(in[0], optionalInput(in, op.getWeightMutable()),
         optionalInput(in, op.getBiasMutable()),
         op.getEpsilon().convertToDouble(), out[0], &out[1], out[2]);
  });
  table.add<RmsNormOp>([](RmsNormOp op, Inputs in, ReferenceTensors &out) {
    // No mean: rstd is the second result.
    norm(in[0], optionalInput(in, op.getWeightMutable()), nullptr,
         op.getEpsilon().convertToDouble(), out[0], nullptr, out[1]);
  });
  // The weight is optional, so mean and rstd are counted from the end.
  table.add<LayerNormGradOp>(
      [](LayerNormGradOp op, Inputs in, ReferenceTensors &out) {
        normGrad(in[0], in[1], optionalInput(in, op.getWeightMutable()),
                 &in[in.size() - 2], in.back(), out[0]);
      });
  table.add<RmsNormGradOp>(
      [](RmsNormGradOp op, Inputs in, ReferenceTensors &out) {
        normGrad(in[0], in[1], optionalInput(in, op.getWeightMutable()),
                 nullptr, in.back(), out[0]);
      });
  table.add<NormWeightGradOp>(
      [](NormWeightGradOp op, Inputs in, ReferenceTensors &out) {
        normWeightGrad(in[0], in[1], optionalInput(in, op.getMeanMutable()),
                       in.back(), out[0]);
      });
  table.add<BatchNormOp>([](BatchNormOp op, Inputs in, ReferenceTensors &out) {
    batchNorm(in, op.getEpsilon().convertToDouble(), out);
  });
  table.add<BatchNormGradOp>(
      [](BatchNormGradOp op, Inputs in, ReferenceTensors &out) {
        batchNormGrad(in, op.getEpsilon().convertToDouble(), out);
      });
  table.add<RotaryOp>(rotary);
}

} // namespace fsdpc::nn::reference

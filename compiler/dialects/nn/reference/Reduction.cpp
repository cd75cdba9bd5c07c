// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference of reductions and softmax: plain loops that define what the ops
// mean. Kernels may add in another order, so tests compare with them to within
// rounding and not bit for bit.
#include "compiler/dialects/nn/reference/Families.h"

#include <cmath>

using namespace mlir;

namespace fsdpc::nn::reference {

// A maximum or minimum with NaN is NaN: `value != value` takes it, and no
// comparison replaces it later.
template <typename T> static void combine(ReduceKind kind, T &to, T value) {
  switch (kind) {
  case ReduceKind::sum:
    to += value;
    break;
  case ReduceKind::max:
    to = value > to || value != value ? value : to;
    break;
  case ReduceKind::min:
    to = value < to || value != value ? value : to;
    break;
  case ReduceKind::prod:
    to *= value;
    break;
  }
}

// Starts from the first element of each result rather than from a neutral one,
// which integers of all widths do not share.
template <typename T>
static void reduce(ReduceKind kind, ArrayRef<int64_t> shape,
                   const std::vector<T> &from, ArrayRef<int64_t> toShape,
                   std::vector<T> &to) {
  std::vector<bool> seen(to.size());
  forEachIndex(shape, [&](Index index, int64_t position) {
    int64_t target = broadcastPosition(toShape, index);
    if (seen[target])
      combine(kind, to[target], from[position]);
    else
      to[target] = from[position];
    seen[target] = true;
  });
}

/// Calls `row(start, width)` for each row of the last axis.
template <typename RowFn>
static void forEachRow(const ReferenceTensor &out, RowFn row) {
  int64_t width = out.shape.empty() ? 1 : out.shape.back();
  for (int64_t i = 0; i < out.size(); i += width)
    row(i, width);
}

// Subtracts the maximum, so that nothing overflows. A row of -∞ gives NaN.
static double logSumExp(const double *x, int64_t width) {
  double maximum = *std::max_element(x, x + width), sum = 0;
  for (int64_t j = 0; j < width; ++j)
    sum += std::exp(x[j] - maximum);
  return maximum + std::log(sum);
}

// Integers reduce in 64 bits and wrap to their width once, at the end, which
// gives the same as wrapping after each step.
static void reduce(ReduceOp op, Inputs in, ReferenceTensors &out) {
  if (out[0].isFloat())
    reduce(op.getKind(), in[0].shape, in[0].floats, out[0].shape,
           out[0].floats);
  else
    reduce(op.getKind(), in[0].shape, in[0].ints, out[0].shape, out[0].ints);
}

/// log_softmax, and softmax as its exponential.
static void softmax(bool isLog, Inputs in, ReferenceTensor &out) {
  forEachRow(out, [&](int64_t start, int64_t width) {
    // exp(x - lse) is the softmax: one formula for both ops.
    double lse = logSumExp(&in[0].floats[start], width);
    for (int64_t i = start; i < start + width; ++i) {
      double log = in[0].floats[i] - lse;
      out.floats[i] = isLog ? log : std::exp(log);
    }
  });
}

// dx = y · (dy - Σ y · dy) per row.
static void softmaxGrad(SoftmaxGradOp, Inputs in, ReferenceTensors &out) {
  const auto &y = in[0].floats, &grad = in[1].floats;
  forEachRow(out[0], [&](int64_t start, int64_t width) {
    double dot = 0;
    for (int64_t i = start; i < start + width; ++i)
      dot += y[i] * grad[i];
    for (int64_t i = start; i < start + width; ++i)
      out[0].floats[i] = y[i] * (grad[i] - dot);
  });
}

void addReductions(ReferenceTable &table) {
  table.add<ReduceOp>([](ReduceOp op, Inputs in, ReferenceTensors &out) {
    reduce(op, in, out);
  });
  table.add<SoftmaxOp>([](SoftmaxOp, Inputs in, ReferenceTensors &out) {
    softmax(/*isLog=*/false, in, out[0]);
  });
  table.add<LogSoftmaxOp>([](LogSoftmaxOp, Inputs in, ReferenceTensors &out) {
    softmax(/*isLog=*/true, in, out[0]);
  });
  table.add<SoftmaxGradOp>(softmaxGrad);
}

} // namespace fsdpc::nn::reference

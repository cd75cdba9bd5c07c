// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A tall matrix is multiplied from the right instead of being transposed: the
// products with its own transpose are symmetric, so either side gives the same.
// The library multiplies f32 in f32; what is added to a product, and the
// rounding to bf16, are kernels of the runtime.
#include "runtime/cuda/matrix_products.h"

#include "runtime/cuda/kernels/own.h"

#include <algorithm>

namespace fsdpc::runtime {
namespace {

MatmulPlan productOf(int64_t m, int64_t n, int64_t k, bool transposeA,
                     bool transposeB) {
  MatmulPlan plan;
  plan.m = m, plan.n = n, plan.k = k;
  plan.transposeA = transposeA, plan.transposeB = transposeB;
  plan.lda = transposeA ? m : k;
  plan.ldb = transposeB ? k : n;
  plan.ldc = n;
  plan.dtypeA = plan.dtypeB = plan.dtypeC = "f32";
  return plan;
}

int64_t roundedUp(int64_t elements) { return (elements + 3) / 4 * 4; }

} // namespace

Result<MatrixProducts::Shape> MatrixProducts::planned(int64_t rows,
                                                      int64_t columns) {
  bool tall = rows > columns;
  int64_t low = std::min(rows, columns), high = std::max(rows, columns);
  Shape shape;
  auto gram = products.plan(productOf(low, low, high, tall, !tall));
  FSDPC_TRY(gram);
  auto square = products.plan(productOf(low, low, low, false, false));
  FSDPC_TRY(square);
  auto apply = products.plan(productOf(rows, columns, low, false, false));
  FSDPC_TRY(apply);
  return Shape{std::move(*gram), std::move(*square), std::move(*apply)};
}

Status MatrixProducts::plan(const Manifest &manifest) {
  for (const Layout &layout : manifest.layouts) {
    if (!layout.orthogonal)
      continue;
    for (const Member &member : layout.members) {
      if (member.shape.size() != 2)
        return inputError("parameter '" + member.name + "' of optimizer '" +
                          layout.optimizer + "' is no matrix");
      std::pair<int64_t, int64_t> key(member.shape[0], member.shape[1]);
      if (shapes.count(key))
        continue;
      auto shape = planned(key.first, key.second);
      FSDPC_TRY(shape);
      shapes.emplace(key, std::move(*shape));
    }
  }
  return {};
}

void MatrixProducts::orthogonalize(const Member &member, const float *update,
                                   float *result, const Room &room,
                                   const MatrixSteps &by, double factor) const {
  int64_t rows = member.shape[0], columns = member.shape[1];
  int64_t count = member.elements, low = std::min(rows, columns);
  bool tall = rows > columns;
  const Shape &shape = shapes.at({rows, columns});
  float *x = room.matrices, *other = x + roundedUp(count),
        *gram = other + roundedUp(count), *polynomial = gram + roundedUp(count);

  MatrixSquares squares;
  squares.values = update, squares.count = count;
  squares.bf16 = by.bf16, squares.digits = room.digits;
  context.launchBlocks(squares, (count + matrixChunk - 1) / matrixChunk,
                       FSDPC_STREAM_COMPUTE);
  NormalizeMatrix normalize;
  normalize.from = update, normalize.count = count;
  normalize.eps = float(by.eps), normalize.bf16 = by.bf16;
  normalize.digits = room.digits, normalize.to = x;
  context.launch(normalize, count, FSDPC_STREAM_COMPUTE);

  auto combine = [&](float *c, const float *d, int64_t elements, double alpha,
                     double beta) {
    if (!d && !by.bf16)
      return;
    CombineMatrices add;
    add.c = c, add.d = d, add.count = elements;
    add.alpha = float(alpha), add.beta = float(beta), add.bf16 = by.bf16;
    context.launch(add, elements, FSDPC_STREAM_COMPUTE);
  };
  for (int32_t step = 0; step < by.steps; ++step) {
    shape.gram.run(context, {x, x, gram}, room.workspace);
    combine(gram, nullptr, low * low, 1, 0);
    shape.square.run(context, {gram, gram, polynomial}, room.workspace);
    combine(polynomial, gram, low * low, by.c, by.b);
    if (tall)
      shape.apply.run(context, {x, polynomial, other}, room.workspace);
    else
      shape.apply.run(context, {polynomial, x, other}, room.workspace);
    combine(other, x, count, 1, by.a);
    std::swap(x, other);
  }
  ScaleMatrix scale;
  scale.from = x, scale.count = count;
  scale.factor = factor, scale.to = result;
  context.launch(scale, count, FSDPC_STREAM_COMPUTE);
}

} // namespace fsdpc::runtime

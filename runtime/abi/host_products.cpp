// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shapes of products, and the cuts of matrix products (host_products.h). K is
// never cut, because the order of a sum would then depend on the cut. Measured
// on one core with gemm_bench, chunks of the sizes below cost little compared
// with the whole product, or even gain because they fit the caches.
#include "runtime/abi/host_products.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <tuple>

namespace fsdpc {

namespace {

// A constant, because the grid must not depend on the number of threads.
constexpr int64_t maxChunks = 8;
// About half a millisecond; cutting smaller products costs more than it gains.
constexpr int64_t minChunkFlops = int64_t(64) << 20;

// A single row or column has a stride that no element depends on. oneDNN's
// cache of primitives ignores it, but the choice of a kernel, with its scratch
// memory, does not, so equal products must have equal strides.
void fixUnusedStride(int64_t rows, int64_t columns, int64_t &row,
                     int64_t &column) {
  if (columns == 1)
    column = 1;
  if (rows == 1)
    row = column == 1 ? columns : 1;
}

} // namespace

// The order is arbitrary; it makes shapes keys of maps.
bool GemmShape::operator<(const GemmShape &o) const {
  auto key = [](const GemmShape &s) {
    return std::make_tuple(s.m, s.n, s.k, s.rowA, s.columnA, s.rowB, s.columnB,
                           s.rowC, s.a, s.b, s.c, s.accumulate);
  };
  return key(*this) < key(o);
}

GemmShape withFixedStrides(GemmShape s) {
  int64_t columnC = 1;
  fixUnusedStride(s.m, s.k, s.rowA, s.columnA);
  fixUnusedStride(s.k, s.n, s.rowB, s.columnB);
  fixUnusedStride(s.m, s.n, s.rowC, columnC);
  return s;
}

GemmShape denseShape(const GemmShape &s, bool widen) {
  GemmShape d = s;
  (s.columnA == 1 ? d.rowA : d.columnA) = s.columnA == 1 ? s.k : s.m;
  (s.columnB == 1 ? d.rowB : d.columnB) = s.columnB == 1 ? s.n : s.k;
  d.rowC = s.n;
  if (widen)
    d.a = d.b = d.c = ElementType::f32;
  d.accumulate = s.accumulate && d.rowC == s.rowC && d.c == s.c;
  return withFixedStrides(d); // a gap has left a single row a stride of 1
}

int64_t columnPieces(const GemmShape &shape) {
  // Where copies were measured to gain time.
  constexpr int64_t leastRows = 16, leastColumns = 1024, leastPiece = 64;
  bool isF32 = shape.a == ElementType::f32 && shape.b == ElementType::f32;
  bool isDense =
      shape.columnB == 1 && shape.rowB == shape.n && shape.rowC == shape.n;
  int64_t piece = shape.n & -shape.n; // the largest power of two that divides n
  if (!isF32 || !isDense || shape.m < leastRows || shape.n < leastColumns ||
      piece < leastPiece)
    return 1;
  return shape.n / piece;
}

// Chunks are full rows if that gives enough of them: their results are dense,
// which oneDNN's BRGEMM requires, and are written in place. A product much
// wider than high is cut into panels of columns that stay in a core's L2 until
// they are copied to their place, unless copying the panels of B would cost
// more.
MatmulGrid gridOf(const MatmulPlan &p) {
  int64_t batches = 1;
  for (int64_t extent : p.batch)
    batches *= extent;
  if (p.n > 8 * p.m && (p.transposeB || p.m >= 128))
    return {p.m, std::min<int64_t>(p.n, 512)};
  int64_t wanted = std::max<int64_t>(maxChunks / batches, 1);
  // Exact where it is below `wanted`; the product may exceed 64 bits.
  double most = 2.0 * double(p.m) * double(p.n) * double(p.k) / minChunkFlops;
  wanted = int64_t(std::clamp<double>(most, 1, double(wanted)));
  wanted = std::min(wanted, (p.m + 255) / 256);
  int64_t rows = roundUp((p.m + wanted - 1) / wanted, 64);
  return {std::min({p.m, rows, int64_t(p.accumulate ? 256 : 512)}), p.n};
}

Result<GemmShape> productOf(const MatmulPlan &p) {
  if (p.bias || p.addend || !p.epilogue.empty())
    return inputError(
        "matrix products with a bias or an epilogue are supported on "
        "GPUs only");
  GemmShape shape;
  if (!parseElementType(p.dtypeA, shape.a) ||
      !parseElementType(p.dtypeB, shape.b) ||
      !parseElementType(p.dtypeC, shape.c))
    return inputError("matrix product of types '" + p.dtypeA + "', '" +
                      p.dtypeB + "', '" + p.dtypeC + "' is not supported");
  shape.rowA = p.transposeA ? 1 : p.lda;
  shape.columnA = p.transposeA ? p.lda : 1;
  shape.rowB = p.transposeB ? 1 : p.ldb;
  shape.columnB = p.transposeB ? p.ldb : 1;
  shape.rowC = p.ldc;
  shape.m = p.m;
  shape.n = p.n;
  shape.k = p.k;
  shape.accumulate = p.accumulate;
  return shape;
}

GemmShape chunkOf(const GemmShape &whole, MatmulGrid grid, int64_t row,
                  int64_t column) {
  GemmShape chunk = whole;
  chunk.m = std::min(grid.rows, whole.m - row);
  chunk.n = std::min(grid.columns, whole.n - column);
  return chunk;
}

} // namespace fsdpc

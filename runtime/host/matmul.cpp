// Matrix products cut by their shape (matmul.h). K is never cut, because the
// order of a sum would then depend on the cut. Measured on one core with
// gemm_bench, chunks of the sizes below cost little compared with the whole
// product, or even gain because they fit the caches.
#include "runtime/host/matmul.h"
#include "shared/plan_shapes.h"

#include <algorithm>

namespace fsdpc::runtime {

namespace {

// A constant, because the grid must not depend on the number of threads.
constexpr int64_t maxChunks = 8;
// About half a millisecond; cutting smaller products costs more than it gains.
constexpr int64_t minChunkFlops = int64_t(64) << 20;

// Fits a core's L2 beside the operands.
constexpr int64_t maxReadAhead = int64_t(1) << 20;

// Batch entries smaller than this are dealt several at a time.
constexpr int64_t minPieceFlops = int64_t(1) << 20;

int64_t roundUp(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

// Chunks are full rows if that gives enough of them: their results are dense,
// which oneDNN's BRGEMM requires, and are written in place. A product much
// wider than high is cut into panels of columns that stay in a core's L2 until
// they are copied to their place, unless copying the panels of B would cost
// more.
MatmulGrid chooseGrid(const MatmulPlan &p, int64_t batches) {
  if (p.n > 8 * p.m && (p.transposeB || p.m >= 128))
    return {p.m, std::min<int64_t>(p.n, 512)};
  int64_t wanted = std::max<int64_t>(maxChunks / batches, 1);
  wanted = std::clamp<int64_t>(2 * p.m * p.n * p.k / minChunkFlops, 1, wanted);
  wanted = std::min(wanted, (p.m + 255) / 256);
  int64_t rows = roundUp((p.m + wanted - 1) / wanted, 64);
  return {std::min({p.m, rows, int64_t(p.accumulate ? 256 : 512)}), p.n};
}

// Fetches a chunk of the result into L2 at the full speed of memory. A product
// that adds to its result reads it late and one cache line at a time.
void readAhead(const char *memory, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(memory + i, 1, 2);
}

} // namespace

Status Matmul::plan(const MatmulPlan &p, GemmCache &cache) {
  FSDPC_TRY(checkShape(p)); // the grid divides by extents
  int64_t batches = 1;
  for (int64_t extent : p.batch)
    batches *= extent;
  return plan(p, chooseGrid(p, batches), cache);
}

Status Matmul::plan(const MatmulPlan &p, MatmulGrid grid, GemmCache &cache) {
  if (p.bias)
    return Error{"matrix products with a bias are supported on GPUs only"};
  FSDPC_TRY(checkShape(p));
  GemmShape shape;
  if (!parseElementType(p.dtypeA, shape.a) ||
      !parseElementType(p.dtypeB, shape.b) ||
      !parseElementType(p.dtypeC, shape.c))
    return Error{"matrix product of types '" + p.dtypeA + "', '" + p.dtypeB +
                 "', '" + p.dtypeC + "' is not supported"};
  shape.rowA = p.transposeA ? 1 : p.lda;
  shape.columnA = p.transposeA ? p.lda : 1;
  shape.rowB = p.transposeB ? 1 : p.ldb;
  shape.columnB = p.transposeB ? p.ldb : 1;
  shape.rowC = p.ldc;
  shape.k = p.k;
  shape.accumulate = p.accumulate;
  int64_t bytesA = elementBytes(shape.a), bytesB = elementBytes(shape.b),
          bytesC = elementBytes(shape.c);

  int64_t batches = 1;
  for (int64_t extent : p.batch)
    batches *= extent;
  // Offsets of every batch entry, with the last axis fastest.
  for (int64_t entry = 0; entry < batches; ++entry) {
    int64_t a = 0, b = 0, c = 0, rest = entry;
    for (size_t i = p.batch.size(); i-- > 0;) {
      int64_t index = rest % p.batch[i];
      rest /= p.batch[i];
      a += index * p.strideA[i];
      b += index * p.strideB[i];
      c += index * p.strideC[i];
    }
    batchA.push_back(a * bytesA);
    batchB.push_back(b * bytesB);
    batchC.push_back(c * bytesC);
  }

  for (int64_t i = 0; i < p.m; i += grid.rows)
    for (int64_t j = 0; j < p.n; j += grid.columns) {
      shape.m = std::min(grid.rows, p.m - i);
      shape.n = std::min(grid.columns, p.n - j);
      auto gemm = cache.get(shape);
      FSDPC_TRY(gemm);
      // Only a result without gaps between its rows is worth reading ahead.
      int64_t dense = shape.n == p.ldc ? shape.m * shape.n * bytesC : 0;
      chunks.push_back({*gemm, i * shape.rowA * bytesA,
                        j * shape.columnB * bytesB, (i * p.ldc + j) * bytesC,
                        p.accumulate && dense <= maxReadAhead ? dense : 0});
    }
  // Small products of a batch are dealt in groups, so that taking a piece costs
  // little compared with computing it.
  int64_t flops = std::max<int64_t>(2 * grid.rows * grid.columns * p.k, 1);
  unitsPerPiece = std::max<int64_t>(minPieceFlops / flops, 1);
  return {};
}

size_t Matmul::scratchBytes() const {
  size_t bytes = 0;
  for (const Chunk &chunk : chunks)
    bytes = std::max(bytes, chunk.gemm->scratchBytes());
  return bytes;
}

void Matmul::prepare() {
  for (Chunk &chunk : chunks)
    chunk.gemm->prepare();
}

// A unit is one chunk of one batch entry. Each writes its own part of C, so
// units run in any order.
void Matmul::run(ThreadPool &pool, const Scratch &scratch, const void *a,
                 const void *b, void *c) const {
  int64_t grid = chunks.size(), units = grid * int64_t(batchA.size());
  int64_t pieces = (units + unitsPerPiece - 1) / unitsPerPiece;
  pool.run(pieces, [&](int64_t piece, int thread) {
    int64_t end = std::min(units, (piece + 1) * unitsPerPiece);
    for (int64_t unit = piece * unitsPerPiece; unit < end; ++unit) {
      const Chunk &chunk = chunks[unit % grid];
      int64_t entry = unit / grid;
      char *result = static_cast<char *>(c) + batchC[entry] + chunk.c;
      readAhead(result, chunk.readAhead);
      chunk.gemm->run(thread,
                      static_cast<const char *>(a) + batchA[entry] + chunk.a,
                      static_cast<const char *>(b) + batchB[entry] + chunk.b,
                      result, scratch.of(thread));
    }
  });
}

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products cut by their shape (matmul.h). runtime/abi/host_products.h
// cuts them; this computes the chunks, several small ones at a time, and
// fetches a result that is added to before it is needed.
#include "runtime/host/matmul.h"
#include "runtime/abi/plan_shapes.h"

#include <algorithm>

namespace fsdpc::runtime {

namespace {

// Fits a core's L2 beside the operands.
constexpr int64_t maxReadAhead = int64_t(1) << 20;

// Batch entries smaller than this are dealt several at a time.
constexpr int64_t minPieceFlops = int64_t(1) << 20;

// Fetches a chunk of the result into L2 at the full speed of memory. A product
// that adds to its result reads it late and one cache line at a time.
void readAhead(const char *memory, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(memory + i, 1, 2);
}

} // namespace

Status Matmul::plan(const MatmulPlan &p, GemmCache &cache) {
  FSDPC_TRY(checkShape(p)); // the grid divides by extents
  return plan(p, gridOf(p), cache);
}

Status Matmul::plan(const MatmulPlan &p, MatmulGrid grid, GemmCache &cache) {
  FSDPC_TRY(checkShape(p));
  Result<GemmShape> whole = productOf(p);
  FSDPC_TRY(whole);
  GemmShape shape = *whole;
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

  // Chunks at the edges are smaller, so a plan has up to four shapes of
  // products.
  for (int64_t i = 0; i < p.m; i += grid.rows)
    for (int64_t j = 0; j < p.n; j += grid.columns) {
      shape = chunkOf(*whole, grid, i, j);
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
      // Chunks fastest: neighbouring units read the same batch entry.
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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bounds of scratch memory (host_scratch.h). oneDNN chooses its blocks by rules
// of many cases, but never above fixed sizes: 256 rows, 1024 columns of sums,
// 64 columns and a depth of 1024 of B. The bounds take these sizes and say
// which of the three buffers a product can need at all. Fitted to oneDNN 2.6 on
// AVX2, AVX-512 and AVX-512 BF16: of 60,000 random products none needs more.
#include "runtime/abi/host_scratch.h"
#include "runtime/abi/plan_shapes.h"
#include "runtime/support/round_up.h"

#include <algorithm>

namespace fsdpc {

namespace {

bool isF32(const GemmShape &s) {
  return s.a == ElementType::f32 && s.b == ElementType::f32 &&
         s.c == ElementType::f32;
}

// oneDNN has products of two f32 and of two bf16 operands; the latter give
// bf16 or f32.
bool isBf16(const GemmShape &s) {
  return s.a == ElementType::bf16 && s.b == ElementType::bf16 &&
         s.c != ElementType::f16;
}

// The three buffers of BRGEMM on dense operands: A transposed, or the tail of
// its rows; a panel of B in the order of the instructions; and sums of a result
// that is not ready after one pass over the depth.
int64_t brgemmBytes(const GemmShape &s) {
  int64_t bytes = elementBytes(s.a), vector = 64 / bytes;
  // Lists of blocks, and alignment.
  constexpr int64_t rest = 1024;
  // The dense copy of a single row may have both strides 1.
  bool transposesA = s.columnA != 1 || (s.rowA == 1 && s.k > 1);
  bool transposesB = s.columnB != 1 || (s.rowB == 1 && s.n > 1);
  int64_t rows = std::min<int64_t>(s.m, 256);
  int64_t most = s.k <= 1024 && bytes == 4 ? 512 : 1024;
  int64_t depth = std::min(roundUp(s.k, vector), most);
  // Rows of a transposed A are a vector apart, so that they do not share sets
  // of the cache.
  int64_t a = transposesA    ? rows * (depth + vector) * bytes
              : s.k % vector ? rows * vector * bytes
                             : 0;
  // An f32 panel is copied in any case if its rows would share sets.
  int64_t b = transposesB || bytes == 2 || s.n % 512 == 0 || columnPieces(s) > 1
                  ? 64 * roundUp(depth, vector) * bytes
                  : 0;
  int64_t columns =
      std::min<int64_t>(roundUp(s.n, 64), transposesA ? 1024 : 64);
  bool hasSums = (s.accumulate || s.c != ElementType::f32) && s.k > 512;
  return rest + a + b + (hasSums ? rows * columns * 4 : 0);
}

// Returns true if the rows (or columns, of an operand in that order) of all
// three matrices lie without gaps, as BRGEMM needs them.
bool isDense(const GemmShape &s) {
  return copyBytes(s, denseShape(s, false)) == 0;
}

// A product on copies; the copies are in scratch while it runs.
int64_t copyingBytes(const GemmShape &s, bool widen, bool brgemm) {
  GemmShape inner = denseShape(s, widen);
  return copyBytes(s, inner) + (brgemm ? brgemmBytes(inner) : 0);
}

// The scratch on processors of exactly this class, in the order of preference
// of Gemm::make.
int64_t scratchOn(const GemmShape &s, HostIsa isa) {
  bool hasAvx512 = isa != HostIsa::avx2;
  bool native = isF32(s) || (isBf16(s) && hasAvx512);
  if (!native)
    return copyingBytes(s, /*widen=*/true, hasAvx512);
  if (isF32(s) ? hasAvx512 : isa == HostIsa::avx512Bf16)
    return isDense(s) ? brgemmBytes(s) : copyingBytes(s, false, true);
  // The older gemm sums a bf16 result in f32.
  return s.c == ElementType::f32 ? 0 : s.m * s.n * 4 + 1024;
}

} // namespace

// avx512bf16 is the newest feature that the compiler requires.
HostIsa isaOf(const std::vector<std::string> &features) {
  auto has = [&](const char *name) {
    return std::find(features.begin(), features.end(), name) != features.end();
  };
  return has("avx512bf16") ? HostIsa::avx512Bf16
         : has("avx512f")  ? HostIsa::avx512
                           : HostIsa::avx2;
}

int64_t copyBytes(const GemmShape &s, const GemmShape &c) {
  auto bytes = [](bool copied, int64_t elements, ElementType type) {
    return copied ? roundUp(elements * elementBytes(type), 64) : 0;
  };
  return bytes(s.rowA != c.rowA || s.columnA != c.columnA || s.a != c.a,
               s.m * s.k, c.a) +
         bytes(s.rowB != c.rowB || s.columnB != c.columnB || s.b != c.b,
               s.k * s.n, c.b) +
         bytes(s.rowC != c.rowC || s.c != c.c, s.m * s.n, c.c);
}

// Later processors run the same program, with kernels of their own.
int64_t productScratchBytes(const GemmShape &shape, HostIsa isa) {
  GemmShape s = withFixedStrides(shape);
  int64_t most = 0;
  for (HostIsa each : {HostIsa::avx2, HostIsa::avx512, HostIsa::avx512Bf16})
    if (each >= isa)
      most = std::max(most, roundUp(scratchOn(s, each), 64));
  return most;
}

static int64_t scratchOf(const MatmulPlan &plan, HostIsa isa) {
  Result<GemmShape> whole = productOf(plan);
  if (!whole)
    return 0;
  MatmulGrid grid = gridOf(plan);
  // Chunks are of one shape but for those at the ends.
  int64_t lastRow = (plan.m - 1) / grid.rows * grid.rows;
  int64_t lastColumn = (plan.n - 1) / grid.columns * grid.columns;
  int64_t most = 0;
  for (int64_t row : {int64_t(0), lastRow})
    for (int64_t column : {int64_t(0), lastColumn})
      most = std::max(
          most, productScratchBytes(chunkOf(*whole, grid, row, column), isa));
  return most;
}

static int64_t scratchOf(const ConvolutionPlan &plan, HostIsa isa) {
  Result<ConvolutionCut> cut = cutConvolution(plan);
  if (!cut)
    return 0;
  if (cut->direct)
    return cut->matrixBytes;
  int64_t most = 0;
  for (const ConvolutionCut::Block &block : cut->blocks)
    for (bool again : {false, true})
      if (!again || plan.kind == "weight")
        most = std::max(most,
                        productScratchBytes(cut->productOf(block, again), isa));
  return most + cut->matrixBytes + cut->sumBytes;
}

static int64_t scratchOf(const AttentionPlan &plan, HostIsa isa) {
  Result<AttentionCut> cut = cutAttention(plan);
  if (!cut)
    return 0;
  int64_t most = 0;
  for (const AttentionCut::Block &block : cut->blocks) {
    std::vector<GemmShape> products = {cut->scores(block)};
    if (plan.backward)
      for (const GemmShape &shape :
           {cut->dweights(block), cut->dquery(block), cut->dkey(block, false),
            cut->dkey(block, true), cut->dvalue(block, false),
            cut->dvalue(block, true)})
        products.push_back(shape);
    else
      products.push_back(cut->output(block));
    for (const GemmShape &shape : products)
      most = std::max(most, productScratchBytes(shape, isa));
  }
  return most + cut->ownScratch();
}

int64_t hostScratchBytes(const Manifest &manifest, int threads) {
  HostIsa isa = isaOf(manifest.cpuFeatures);
  int64_t most = 0;
  auto take = [&](const auto &plans) {
    for (const auto &plan : plans)
      if (checkShape(plan))
        most = std::max(most, scratchOf(plan, isa));
  };
  take(manifest.matmuls);
  take(manifest.convolutions);
  take(manifest.attentions);
  return scratchPerThread(most) * threads;
}

} // namespace fsdpc

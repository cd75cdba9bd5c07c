// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bounds of scratch memory that plans count (runtime/abi/host_scratch.h)
// against what oneDNN asks for: no product may need more than its bound, and
// none may have been given a slower implementation to keep it. CTest runs this
// once for each class of processors, capped by ONEDNN_MAX_CPU_ISA.
#include "runtime/host/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <dnnl.h>
#include <random>
#include <string>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

// The class of this processor, as capped. Newer ones count as the last class.
HostIsa thisIsa() {
  int isa = dnnl_get_effective_cpu_isa();
  auto has = [&](int wanted) { return (isa & wanted) == wanted; };
  return has(dnnl_cpu_isa_avx512_core_bf16) ? HostIsa::avx512Bf16
         : has(dnnl_cpu_isa_avx512_core)    ? HostIsa::avx512
                                            : HostIsa::avx2;
}

class Shapes {
public:
  explicit Shapes(int seed) : random(seed) {}

  // Sizes at and beside the limits of blocks, and any others.
  int64_t extent(int64_t most) {
    constexpr int64_t usual[] = {1,   2,   16,  17,  31,   32,   48,
                                 63,  64,  65,  96,  128,  192,  255,
                                 256, 257, 320, 384, 511,  512,  513,
                                 640, 768, 896, 960, 1023, 1024, 1025};
    switch (random() % 4) {
    case 0:
      return std::min(usual[random() % std::size(usual)], most);
    case 1:
      return 1 + int64_t(random()) % std::min<int64_t>(most, 70);
    case 2:
      return 1 + int64_t(random()) % std::min<int64_t>(most, 1100);
    default:
      return 1 + int64_t(random()) % most;
    }
  }

  // A product as gridOf cuts them: few rows, or few columns.
  GemmShape next() {
    GemmShape s;
    bool wide = random() % 2;
    s.m = extent(wide ? 512 : 4000);
    s.n = extent(wide ? 60000 : 512);
    s.k = extent(9000);
    if (wide && random() % 4 == 0) // columns that are read in pieces
      s.n = 64 * (16 + int64_t(random()) % 100);
    int64_t gap = random() % 4 ? 0 : extent(600);
    bool transposesA = random() % 2, transposesB = random() % 2;
    (transposesA ? s.columnA : s.rowA) = (transposesA ? s.m : s.k) + gap;
    (transposesA ? s.rowA : s.columnA) = 1;
    (transposesB ? s.columnB : s.rowB) = (transposesB ? s.k : s.n) + gap;
    (transposesB ? s.rowB : s.columnB) = 1;
    s.rowC = s.n + (random() % 2 ? gap : 0);
    s.accumulate = random() % 2;
    constexpr ElementType f32 = ElementType::f32, bf16 = ElementType::bf16,
                          f16 = ElementType::f16;
    constexpr ElementType types[][3] = {
        {f32, f32, f32}, {bf16, bf16, bf16}, {bf16, bf16, f32}, {f16, f16, f16},
        {f16, f16, f32}, {bf16, f32, bf16},  {f32, bf16, bf16}};
    auto &type = types[random() % std::size(types)];
    s.a = type[0], s.b = type[1], s.c = type[2];
    return s;
  }

private:
  std::mt19937 random;
};

std::string describe(const GemmShape &s) {
  std::string text;
  for (int64_t number :
       {s.m, s.n, s.k, s.rowA, s.columnA, s.rowB, s.columnB, s.rowC,
        int64_t(s.a), int64_t(s.b), int64_t(s.c), int64_t(s.accumulate)})
    text += std::to_string(number) + " ";
  return text;
}

// Random shapes, strides and types against the bound that the memory plan
// counts.
TEST(Scratch, NoProductNeedsMoreThanItsBound) {
  HostIsa isa = thisIsa();
  Shapes shapes(1);
  int64_t needed = 0, planned = 0;
  for (int i = 0; i < 6000; ++i) {
    GemmShape s = shapes.next();
    int64_t bound = productScratchBytes(s, isa);
    auto gemm = Gemm::make(s, 1, size_t(bound));
    ASSERT_TRUE(gemm) << describe(s);
    EXPECT_LE(int64_t((*gemm)->scratchBytes()), bound) << describe(s);
    EXPECT_FALSE((*gemm)->avoidsScratch()) << describe(s);
    needed += int64_t((*gemm)->scratchBytes());
    planned += bound;
  }
  std::printf("class %d: %.1f MiB needed, %.1f MiB planned\n", int(isa),
              double(needed) / (1 << 20), double(planned) / (1 << 20));
}

// A program that was compiled for an older class runs with what its plan
// counts, and with this processor's first choice.
TEST(Scratch, OlderPlansAreEnough) {
  Shapes shapes(2);
  for (HostIsa isa : {HostIsa::avx2, HostIsa::avx512, HostIsa::avx512Bf16})
    for (int i = 0; i < 500 && isa <= thisIsa(); ++i) {
      GemmShape s = shapes.next();
      auto bound = size_t(productScratchBytes(s, isa));
      auto gemm = Gemm::make(s, 1, bound);
      ASSERT_TRUE(gemm) << describe(s);
      EXPECT_LE((*gemm)->scratchBytes(), bound) << describe(s);
      EXPECT_FALSE((*gemm)->avoidsScratch()) << describe(s);
    }
}

// Computes the product of ones, whose elements are k.
void expectRuns(Gemm &gemm, const GemmShape &s) {
  gemm.prepare();
  std::vector<float> a(s.m * s.k, 1), b(s.k * s.n, 1), c(s.m * s.n, 0);
  std::vector<char> scratch(gemm.scratchBytes() + 64);
  auto address = reinterpret_cast<uintptr_t>(scratch.data());
  gemm.run(0, a.data(), b.data(), c.data(),
           reinterpret_cast<void *>((address + 63) / 64 * 64));
  for (float x : c)
    ASSERT_EQ(x, float(s.k));
}

// On a processor whose kernels need more than was planned, the next
// implementation that fits is taken; it computes the same and is reported.
TEST(Scratch, ALaterImplementationKeepsTheLimit) {
  GemmShape s;
  s.m = 256, s.n = s.k = 512;
  s.rowA = 1, s.columnA = s.m, s.rowB = s.rowC = s.n;
  auto first = Gemm::make(s, 1), within = Gemm::make(s, 1, 1000);
  ASSERT_TRUE(first && within);
  EXPECT_FALSE((*first)->avoidsScratch());
  EXPECT_LE((*within)->scratchBytes(), size_t(1000));
  EXPECT_EQ((*within)->avoidsScratch(), (*first)->scratchBytes() > 1000);
  expectRuns(**first, s);
  expectRuns(**within, s);
  // Copies of gaps are avoided too.
  s.columnA = s.m + 3;
  within = Gemm::make(s, 1, 1000);
  ASSERT_TRUE(within);
  EXPECT_LE((*within)->scratchBytes(), size_t(1000));
  // Without room for f32 copies there is no product of f16 at all.
  s.a = s.b = s.c = ElementType::f16;
  EXPECT_FALSE(Gemm::make(s, 1, 1000));
}

} // namespace

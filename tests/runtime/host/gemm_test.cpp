// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of matrices with a single row or column, in one process. oneDNN
// takes two descriptions of such a matrix for the same, whatever the stride
// along the single row, and may run the primitive of one with the scratch
// memory of the other.
#include "runtime/host/gemm.h"
#include "runtime/host/onednn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

constexpr size_t kGuardBytes = 1 << 14;
constexpr char kGuard = 0x5a;

struct Product {
  GemmShape shape;
  std::shared_ptr<Gemm> gemm;
};

// Returns the shape with all ways to give strides: each operand as it is or
// transposed.
std::vector<GemmShape> layouts(int64_t m, int64_t n, int64_t k) {
  std::vector<GemmShape> shapes;
  for (bool transposeA : {true, false})
    for (bool transposeB : {false, true})
      for (bool accumulate : {false, true}) {
        GemmShape s;
        s.m = m, s.n = n, s.k = k, s.rowC = n;
        s.rowA = transposeA ? 1 : k, s.columnA = transposeA ? m : 1;
        s.rowB = transposeB ? 1 : n, s.columnB = transposeB ? k : 1;
        s.accumulate = accumulate;
        shapes.push_back(s);
      }
  return shapes;
}

// Returns the largest error of the product, and checks that it writes nothing
// beyond its scratch memory.
float errorOf(const Product &product) {
  const GemmShape &s = product.shape;
  size_t bytes = product.gemm->scratchBytes();
  std::unique_ptr<char, decltype(&std::free)> scratch(
      static_cast<char *>(std::aligned_alloc(64, bytes + kGuardBytes)),
      &std::free);
  std::memset(scratch.get(), kGuard, bytes + kGuardBytes);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> number(-1, 1);
  std::vector<float> a(2 * s.m * s.k), b(s.k * s.n), c(s.m * s.n, 1.0f);
  for (std::vector<float> *matrix : {&a, &b})
    for (float &x : *matrix)
      x = number(random);
  product.gemm->run(0, a.data(), b.data(), c.data(), scratch.get());
  for (size_t i = 0; i < kGuardBytes; ++i)
    if (scratch.get()[bytes + i] != kGuard) {
      ADD_FAILURE() << "byte " << i << " beyond the scratch memory is written";
      break;
    }
  float worst = 0;
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      float sum = s.accumulate ? 1 : 0;
      for (int64_t l = 0; l < s.k; ++l)
        sum += a[i * s.rowA + l * s.columnA] * b[l * s.rowB + j * s.columnB];
      worst = std::max(worst, std::abs(sum - c[i * s.rowC + j]));
    }
  return worst;
}

// Returns the layouts, and each again with another stride along a single row,
// and with a gap between its elements, which oneDNN is given as a dense copy.
std::vector<GemmShape> sameProducts(int64_t m, int64_t n, int64_t k) {
  std::vector<GemmShape> shapes = layouts(m, n, k);
  for (GemmShape shape : layouts(m, n, k))
    if (m == 1 && shape.columnA == 1) {
      shape.rowA += 5;
      shapes.push_back(shape);
      shape.rowA = 1, shape.columnA = 2;
      shapes.insert(shapes.begin(), shape);
    }
  return shapes;
}

// Makes all products before it prepares any, as the device does.
void check(const std::vector<GemmShape> &shapes) {
  std::vector<Product> products;
  for (const GemmShape &shape : shapes) {
    auto gemm = Gemm::make(shape, 1);
    ASSERT_TRUE(gemm);
    products.push_back({shape, *gemm});
  }
  for (Product &product : products)
    product.gemm->prepare();
  for (const Product &product : products)
    EXPECT_LT(errorOf(product), 1e-4f)
        << product.shape.m << "x" << product.shape.k << " by "
        << product.shape.k << "x" << product.shape.n << ", strides "
        << product.shape.rowA << ", " << product.shape.columnA << " and "
        << product.shape.rowB << ", " << product.shape.columnB;
}

TEST(Gemm, ProductsOfSingleRowsKeepToTheirScratchMemory) {
  for (int64_t m : {1, 2, 17})
    for (int64_t n : {1, 2, 17})
      for (int64_t k : {1, 3, 40}) {
        check(sameProducts(m, n, k));
        // The cache keeps what was made first, so other sizes in reverse.
        std::vector<GemmShape> shapes = sameProducts(m, n, k + 1);
        std::reverse(shapes.begin(), shapes.end());
        check(shapes);
      }
}

// Returns `count` columns from `first` on of a matrix of rows of `width`.
std::vector<float> columns(const std::vector<float> &of, int64_t width,
                           int64_t first, int64_t count) {
  std::vector<float> result;
  for (auto row = of.begin(); row != of.end(); row += width)
    result.insert(result.end(), row + first, row + first + count);
  return result;
}

std::vector<float> product(const GemmShape &s, const std::vector<float> &a,
                           const std::vector<float> &b, std::vector<float> c) {
  auto gemm = Gemm::make(s, 1);
  EXPECT_TRUE(gemm);
  (*gemm)->prepare();
  std::vector<char> scratch((*gemm)->scratchBytes() + 64);
  auto address = reinterpret_cast<uintptr_t>(scratch.data());
  (*gemm)->run(0, a.data(), b.data(), c.data(),
               reinterpret_cast<void *>((address + 63) / 64 * 64));
  return c;
}

// The product in oneDNN's own way, in one piece.
std::vector<float> uncut(const GemmShape &s, const std::vector<float> &a,
                         const std::vector<float> &b, std::vector<float> c) {
  onednn::SingleThreadedOpenMp single;
  auto ofA = onednn::describe(s.m, s.k, s.rowA, s.columnA, s.a),
       ofB = onednn::describe(s.k, s.n, s.rowB, s.columnB, s.b),
       ofC = onednn::describe(s.m, s.n, s.rowC, 1, s.c);
  dnnl_matmul_desc_t matmul;
  dnnl_primitive_desc_t desc;
  onednn::check(dnnl_matmul_desc_init(&matmul, &ofA, &ofB, nullptr, &ofC),
                "describing a product");
  onednn::check(dnnl_primitive_desc_create(&desc, &matmul,
                                           onednn::Attributes(s.accumulate),
                                           onednn::cpuEngine(), nullptr),
                "finding a product");
  onednn::Primitive product(
      desc, 1,
      {{DNNL_ARG_SRC, ofA}, {DNNL_ARG_WEIGHTS, ofB}, {DNNL_ARG_DST, ofC}});
  std::vector<char> scratch(product.scratchBytes() + 64);
  auto address = reinterpret_cast<uintptr_t>(scratch.data());
  product.prepare();
  product.run(0, {a.data(), b.data(), c.data(),
                  reinterpret_cast<void *>((address + 63) / 64 * 64)});
  return c;
}

// Columns that are read in pieces have the bits of the product in one piece,
// and those that each piece has as a product of its own.
TEST(Gemm, PiecesOfColumnsKeepTheirBits) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> number(-1, 1);
  for (int64_t n : {1152, 3072})
    for (int64_t k : {40, 1100})
      for (GemmShape s : layouts(48, n, k)) {
        if (s.columnB != 1)
          continue;
        int64_t pieces = columnPieces(s), width = n / pieces;
        ASSERT_GT(pieces, 1);
        std::vector<float> a(s.m * k), b(k * n), c(s.m * n);
        for (std::vector<float> *matrix : {&a, &b, &c})
          for (float &x : *matrix)
            x = number(random);
        std::vector<float> whole = product(s, a, b, c);
        EXPECT_EQ(whole, uncut(s, a, b, c)) << n << " columns, depth " << k;
        GemmShape piece = s;
        piece.n = piece.rowB = piece.rowC = width;
        ASSERT_EQ(columnPieces(piece), 1);
        for (int64_t first = 0; first < n; first += width)
          EXPECT_EQ(columns(whole, n, first, width),
                    product(piece, a, columns(b, n, first, width),
                            columns(c, n, first, width)))
              << n << " columns from " << first << " on, depth " << k;
        if (k == 40)
          check({s});
      }
}

} // namespace

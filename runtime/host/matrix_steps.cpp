// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of f32 matrices in blocks of 16 columns, and the steps that they
// make up (matrix_steps.h). A block's columns of the right operand are copied
// to the stack, so that it is read in order.
#include "runtime/host/matrix_steps.h"

#include "runtime/numeric/each_processor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace fsdpc::runtime {
namespace {

// One AVX-512 register of f32, or two of AVX2.
constexpr int64_t width = 16; // columns of a block
// A panel takes 16 KiB of the stack.
constexpr int64_t depth = 256; // terms of a sum that are copied at a time
constexpr int64_t height = 4;  // rows that are kept in registers

using Lanes = float __attribute__((vector_size(4 * width), aligned(64)));

// Rounds to a bf16 and back: the values stay f32 in memory.
float toBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value))
    return value;
  bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

void roundAll(float *values, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    values[i] = toBf16(values[i]);
}

// C[m×n] = alpha · A[m×k] · B[k×n] + beta · D[m×n], all row-major. D may be C.
// Alpha and beta apply only if there is a D.
struct Product {
  const float *a, *b, *d;
  float *c;
  int64_t m, n, k;
  float alpha = 1, beta = 0;
  bool bf16 = false;
};

// Adds `count` terms to the sums of `rows` rows of a block. `a` is the first
// row's first factor.
FSDPC_EACH_PROCESSOR
void addTerms(const float *a, int64_t strideA, const Lanes *panel,
              int64_t count, int64_t rows, Lanes *sums) {
  // The full block is written out, so that its sums stay in registers over the
  // loop.
  if (rows == height) {
    Lanes s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3];
    for (int64_t k = 0; k < count; ++k) {
      s0 += a[k] * panel[k];
      s1 += a[strideA + k] * panel[k];
      s2 += a[2 * strideA + k] * panel[k];
      s3 += a[3 * strideA + k] * panel[k];
    }
    sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    Lanes sum = sums[row];
    for (int64_t k = 0; k < count; ++k)
      sum += a[row * strideA + k] * panel[k];
    sums[row] = sum;
  }
}

// Computes columns [first, first + count) of the product. C holds the sums of
// the terms so far; the last pass scales them.
void multiplyColumns(const Product &p, int64_t first, int64_t count) {
  Lanes panel[depth], sums[height];
  // The order of a sum's terms is that of k, whatever the blocks, so cuts
  // change no bit.
  for (int64_t from = 0; from < p.k; from += depth) {
    int64_t terms = std::min(depth, p.k - from);
    for (int64_t k = 0; k < terms; ++k) {
      panel[k] = Lanes{};
      // Columns past the last stay zero; their sums are not stored.
      std::memcpy(&panel[k], p.b + (from + k) * p.n + first,
                  size_t(count) * sizeof(float));
    }
    bool last = from + terms == p.k;
    for (int64_t row = 0; row < p.m; row += height) {
      int64_t rows = std::min(height, p.m - row);
      for (int64_t i = 0; i < rows; ++i) {
        sums[i] = Lanes{};
        if (from > 0)
          std::memcpy(&sums[i], p.c + (row + i) * p.n + first,
                      size_t(count) * sizeof(float));
      }
      addTerms(p.a + row * p.k + from, p.k, panel, terms, rows, sums);
      for (int64_t i = 0; i < rows; ++i) {
        float *to = p.c + (row + i) * p.n + first;
        const float *added = p.d ? p.d + (row + i) * p.n + first : nullptr;
        for (int64_t j = 0; j < count; ++j) {
          float value = sums[i][j];
          if (last && p.d)
            value = p.alpha * value + p.beta * added[j];
          to[j] = last && p.bf16 ? toBf16(value) : value;
        }
      }
    }
  }
}

// Pieces are blocks of columns, each of which one thread computes whole.
void multiply(const Product &product, const EachPiece &each) {
  each((product.n + width - 1) / width, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      int64_t first = block * width;
      multiplyColumns(product, first, std::min(width, product.n - first));
    }
  });
}

// `to` becomes columns × rows.
void transpose(const float *from, int64_t rows, int64_t columns, float *to) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      to[j * rows + i] = from[i * columns + j];
}

// Divides by the Frobenius norm, which bounds the largest singular value by 1.
void normalize(float *x, int64_t count, const MatrixSteps &by) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += double(x[i]) * x[i];
  float norm = float(std::sqrt(sum));
  // torch takes the norm of a bf16 tensor, which is a bf16.
  if (by.bf16)
    norm = toBf16(norm);
  norm = std::max(norm, float(by.eps));
  for (int64_t i = 0; i < count; ++i)
    x[i] /= norm;
}

} // namespace

float *orthogonalized(float *x, float *other, float *square, int64_t rows,
                      int64_t columns, const MatrixSteps &by,
                      const EachPiece &each) {
  int64_t count = rows * columns;
  // Symmetric, both of them, so their rows are their columns.
  float *gram = square, *polynomial = square + rows * rows;
  if (by.bf16)
    roundAll(x, count);
  normalize(x, count, by);
  if (by.bf16)
    roundAll(x, count);
  for (int32_t step = 0; step < by.steps; ++step) {
    // `other` holds the transpose until the last product of the step writes the
    // new x over it.
    transpose(x, rows, columns, other);
    multiply({x, other, nullptr, gram, rows, rows, columns, 1, 0, by.bf16},
             each);
    multiply({gram, gram, gram, polynomial, rows, rows, rows, float(by.c),
              float(by.b), by.bf16},
             each);
    multiply(
        {polynomial, x, x, other, rows, columns, rows, 1, float(by.a), by.bf16},
        each);
    std::swap(x, other);
  }
  return x;
}

} // namespace fsdpc::runtime

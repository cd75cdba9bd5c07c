// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Blocked products. Blocks of A and B are first widened to f32 (or f64). Each
// row of a block of C then takes eight rows of B at a time, in a loop that the
// compiler vectorises for the processor. The order of each sum is that of k,
// whatever the blocks.
#include "runtime/emulation/gemm.h"
#include "runtime/numeric/each_processor.h"
#include "runtime/numeric/float16.h"
#include "runtime/support/round_up.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace fsdpc::runtime::emulation {

namespace {

// A, B and sums of f32 take 512, 512 and 256 KiB: they stay in a core's L2.
constexpr int64_t blockRows = 256, blockColumns = 256, blockDepth = 512,
                  unroll = 8;

using fsdpc::runtime::widen;
// f64 is computed as it is.
double widen(double value) { return value; }

// Copies from[i * row + j * column] to to[i * stride + j], in the order in
// which memory is read fastest.
template <typename From, typename T>
void widenBlock(const From *from, int64_t row, int64_t column, int64_t rows,
                int64_t columns, T *to, int64_t stride) {
  if (column == 1 || row != 1)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        to[i * stride + j] = T(widen(from[i * row + j * column]));
  else
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i)
        to[i * stride + j] = T(widen(from[i + j * column]));
}

// Widens the block of `matrix` that begins at (i, j).
template <typename T>
void loadBlock(const Matrix &matrix, int64_t i, int64_t j, int64_t rows,
               int64_t columns, T *to, int64_t stride) {
  int64_t first = i * matrix.row + j * matrix.column;
  if (matrix.dtype == "bf16")
    widenBlock(static_cast<const BFloat16 *>(matrix.values) + first, matrix.row,
               matrix.column, rows, columns, to, stride);
  else if (matrix.dtype == "f16")
    widenBlock(static_cast<const Float16 *>(matrix.values) + first, matrix.row,
               matrix.column, rows, columns, to, stride);
  else
    widenBlock(static_cast<const T *>(matrix.values) + first, matrix.row,
               matrix.column, rows, columns, to, stride);
}

// Blocks are private to a thread, so sanitizers would learn nothing in the
// inner loop and take most of a test's time there.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define FSDPC_INNER_LOOP                                                       \
  __attribute__((no_sanitize("thread", "address", "undefined")))
#else
#define FSDPC_INNER_LOOP
#endif

// Adds A · B to `sums`. `depth` is a multiple of `unroll`.
template <typename T>
[[gnu::always_inline]] FSDPC_INNER_LOOP inline void
addBlock(const T *__restrict a, const T *__restrict b, int64_t rows,
         int64_t columns, int64_t depth, T *__restrict sums) {
  // An element of C is loaded and stored once per `unroll` additions, which are
  // in the order of k.
  for (int64_t p = 0; p < depth; p += unroll)
    for (int64_t i = 0; i < rows; ++i) {
      const T *__restrict w = a + i * blockDepth + p;
      const T *__restrict r = b + p * blockColumns;
      T *__restrict s = sums + i * blockColumns;
      for (int64_t j = 0; j < columns; ++j) {
        T sum = s[j];
        for (int64_t q = 0; q < unroll; ++q)
          sum += w[q] * r[q * blockColumns + j];
        s[j] = sum;
      }
    }
}

FSDPC_EACH_PROCESSOR FSDPC_INNER_LOOP void
addBlocks(const float *a, const float *b, int64_t rows, int64_t columns,
          int64_t depth, float *sums) {
  addBlock(a, b, rows, columns, depth, sums);
}

FSDPC_EACH_PROCESSOR FSDPC_INNER_LOOP void
addBlocks(const double *a, const double *b, int64_t rows, int64_t columns,
          int64_t depth, double *sums) {
  addBlock(a, b, rows, columns, depth, sums);
}

// GELU by tanh (Hendrycks and Gimpel, 2016).
template <typename T> T gelu(T x) {
  return x / 2 *
         (1 +
          std::tanh(T(M_2_SQRTPI * M_SQRT1_2) * (x + T(0.044715) * x * x * x)));
}

template <typename T> T geluSlope(T x) {
  // Further out the slope is 0 or 1, and its factors would be 0 · inf.
  x = std::isnan(x) ? x : std::clamp(x, T(-32), T(32));
  T c = T(M_2_SQRTPI * M_SQRT1_2), cubic = T(0.044715);
  T t = std::tanh(c * (x + cubic * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * cubic * x * x);
}

template <typename C, typename T> C rounded(T value) {
  if constexpr (sizeof(C) == sizeof(T))
    return value;
  else
    return narrow<C>(value);
}

// Writes sums to the block of C that begins at (row, column).
template <typename C, typename T>
void store(const Product &p, const T *sums, int64_t row, int64_t rows,
           int64_t column, int64_t columns) {
  auto at = [](const void *matrix, int64_t cell) {
    return T(widen(static_cast<const C *>(matrix)[cell]));
  };
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      int64_t cell = (row + i) * p.rowC + column + j;
      T sum = sums[i * blockColumns + j];
      if (p.addend)
        sum += at(p.addend, cell);
      if (p.bias)
        sum += at(p.bias, column + j);
      if (p.epilogue == Epilogue::gelu) {
        if (p.extra)
          static_cast<C *>(p.extra)[cell] = rounded<C>(sum);
        sum = gelu(sum);
      } else if (p.epilogue == Epilogue::geluGrad) {
        sum *= geluSlope(at(p.input, cell));
      }
      static_cast<C *>(p.c)[cell] = rounded<C>(sum);
    }
}

// Sums A or B over k, in order, for the gradient of a bias.
template <typename C, typename T> void sumRows(const Product &p) {
  bool ofA = p.epilogue == Epilogue::sumA;
  const Matrix &from = ofA ? p.a : p.b;
  int64_t step = ofA ? from.column : from.row;
  int64_t next = ofA ? from.row : from.column;
  std::vector<T> sums(size_t(ofA ? p.m : p.n));
  for (int64_t k = 0; k < p.k; ++k)
    for (int64_t i = 0; i < int64_t(sums.size()); ++i)
      sums[size_t(i)] +=
          T(widen(static_cast<const C *>(from.values)[k * step + i * next]));
  for (size_t i = 0; i < sums.size(); ++i)
    static_cast<C *>(p.extra)[i] = rounded<C>(sums[i]);
}

// The blocks of one thread.
template <typename T> struct Blocks {
  std::vector<T> a = std::vector<T>(blockRows * blockDepth);
  std::vector<T> b = std::vector<T>(blockDepth * blockColumns);
  std::vector<T> sums = std::vector<T>(blockRows * blockColumns);
};

// Adds the product of a block of A and a block of B, which begin at `row`,
// `column` and `first`, to the sums.
template <typename T>
void addProduct(const Product &p, int64_t row, int64_t rows, int64_t column,
                int64_t columns, int64_t first, Blocks<T> &blocks) {
  int64_t depth = std::min(blockDepth, p.k - first);
  int64_t whole = roundUp(depth, unroll);
  loadBlock(p.a, row, first, rows, depth, blocks.a.data(), blockDepth);
  loadBlock(p.b, first, column, depth, columns, blocks.b.data(), blockColumns);
  // Pads the last step over k with zeroes.
  for (int64_t i = 0; i < rows && whole > depth; ++i)
    std::fill_n(&blocks.a[i * blockDepth + depth], whole - depth, T(0));
  for (int64_t i = depth; i < whole; ++i)
    std::fill_n(&blocks.b[i * blockColumns], columns, T(0));
  addBlocks(blocks.a.data(), blocks.b.data(), rows, columns, whole,
            blocks.sums.data());
}

template <typename T> void multiplyIn(const Product &p) {
  // Reused by all products of a thread, so that a small product does not
  // allocate.
  thread_local Blocks<T> blocks;
  std::vector<T> &sums = blocks.sums;
  for (int64_t column = 0; column < p.n; column += blockColumns)
    for (int64_t row = 0; row < p.m; row += blockRows) {
      int64_t rows = std::min(blockRows, p.m - row);
      int64_t columns = std::min(blockColumns, p.n - column);
      for (int64_t i = 0; i < rows; ++i)
        std::fill_n(&sums[i * blockColumns], columns, T(0));
      for (int64_t first = 0; first < p.k; first += blockDepth)
        addProduct(p, row, rows, column, columns, first, blocks);
      // f64 products have an f64 result, so only the f32 code needs a narrow
      // one.
      if (sizeof(T) == sizeof(float) && p.dtypeC == "bf16")
        store<BFloat16>(p, sums.data(), row, rows, column, columns);
      else if (sizeof(T) == sizeof(float) && p.dtypeC == "f16")
        store<Float16>(p, sums.data(), row, rows, column, columns);
      else
        store<T>(p, sums.data(), row, rows, column, columns);
    }
}

// The rows have the type of the result.
template <typename T> void multiplyWhole(const Product &p) {
  multiplyIn<T>(p);
  if (p.epilogue != Epilogue::sumA && p.epilogue != Epilogue::sumB)
    return;
  if (p.dtypeC == "bf16")
    sumRows<BFloat16, T>(p);
  else if (p.dtypeC == "f16")
    sumRows<Float16, T>(p);
  else
    sumRows<T, T>(p);
}

} // namespace

void multiply(const Product &product) {
  if (product.dtypeC == "f64")
    multiplyWhole<double>(product);
  else
    multiplyWhole<float>(product);
}

} // namespace fsdpc::runtime::emulation

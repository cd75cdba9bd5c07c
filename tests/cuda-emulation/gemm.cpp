// Blocked products; see gemm.h. Blocks of A and B are widened first; a row of a
// block of C then takes eight rows of B at a time, in a loop that the compiler
// vectorises for the processor.
#include "tests/cuda-emulation/gemm.h"
#include "runtime/comm/bfloat16.h"
#include "runtime/comm/each_processor.h"

#include <algorithm>
#include <vector>

namespace fsdpc::emulation {

namespace {

constexpr int64_t blockRows = 256, blockColumns = 256, blockDepth = 512,
                  unroll = 8;

using fsdpc::widen;
double widen(double value) { return value; }

// to[i * stride + j] = from[i * row + j * column].
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

// The block of `matrix` that begins at (i, j).
template <typename T>
void loadBlock(const Matrix &matrix, int64_t i, int64_t j, int64_t rows,
               int64_t columns, T *to, int64_t stride) {
  int64_t first = i * matrix.row + j * matrix.column;
  if (matrix.dtype == "bf16")
    widenBlock(static_cast<const BFloat16 *>(matrix.values) + first, matrix.row,
               matrix.column, rows, columns, to, stride);
  else
    widenBlock(static_cast<const T *>(matrix.values) + first, matrix.row,
               matrix.column, rows, columns, to, stride);
}

// sums += A · B; depth is a multiple of `unroll`.
template <typename T>
[[gnu::always_inline]] inline void addBlock(const T *__restrict a,
                                            const T *__restrict b, int64_t rows,
                                            int64_t depth, T *__restrict sums) {
  for (int64_t p = 0; p < depth; p += unroll)
    for (int64_t i = 0; i < rows; ++i) {
      const T *__restrict w = a + i * blockDepth + p;
      const T *__restrict r = b + p * blockColumns;
      T *__restrict s = sums + i * blockColumns;
      for (int64_t j = 0; j < blockColumns; ++j) {
        T sum = s[j];
        for (int64_t q = 0; q < unroll; ++q)
          sum += w[q] * r[q * blockColumns + j];
        s[j] = sum;
      }
    }
}

FSDPC_EACH_PROCESSOR
void addBlocks(const float *a, const float *b, int64_t rows, int64_t depth,
               float *sums) {
  addBlock(a, b, rows, depth, sums);
}

FSDPC_EACH_PROCESSOR
void addBlocks(const double *a, const double *b, int64_t rows, int64_t depth,
               double *sums) {
  addBlock(a, b, rows, depth, sums);
}

template <typename T, typename C>
void store(const T *sums, int64_t rows, int64_t columns, bool add, C *c,
           int64_t rowC) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      T sum = sums[i * blockColumns + j];
      C &cell = c[i * rowC + j];
      if (add)
        sum += T(widen(cell));
      if constexpr (sizeof(C) == sizeof(T))
        cell = sum;
      else
        cell = narrow<C>(sum);
    }
}

template <typename T> void multiplyIn(const Product &p) {
  std::vector<T> a(blockRows * blockDepth), b(blockDepth * blockColumns),
      sums(blockRows * blockColumns);
  for (int64_t column = 0; column < p.n; column += blockColumns)
    for (int64_t row = 0; row < p.m; row += blockRows) {
      int64_t rows = std::min(blockRows, p.m - row);
      int64_t columns = std::min(blockColumns, p.n - column);
      std::fill(sums.begin(), sums.end(), T(0));
      for (int64_t first = 0; first < p.k; first += blockDepth) {
        int64_t depth = std::min(blockDepth, p.k - first);
        int64_t whole = (depth + unroll - 1) / unroll * unroll;
        if (whole != depth) { // what is left over adds zeroes
          std::fill(a.begin(), a.end(), T(0));
          std::fill(b.begin(), b.end(), T(0));
        }
        loadBlock(p.a, row, first, rows, depth, a.data(), blockDepth);
        loadBlock(p.b, first, column, depth, columns, b.data(), blockColumns);
        addBlocks(a.data(), b.data(), rows, whole, sums.data());
      }
      int64_t corner = row * p.rowC + column;
      if constexpr (sizeof(T) == sizeof(float))
        if (p.dtypeC == "bf16") {
          store(sums.data(), rows, columns, p.add,
                static_cast<BFloat16 *>(p.c) + corner, p.rowC);
          continue;
        }
      store(sums.data(), rows, columns, p.add, static_cast<T *>(p.c) + corner,
            p.rowC);
    }
}

} // namespace

void multiply(const Product &product) {
  if (product.dtypeC == "f64")
    multiplyIn<double>(product);
  else
    multiplyIn<float>(product);
}

} // namespace fsdpc::emulation

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products in plain loops. Correct first, and blocked so that training
// small models takes seconds. Each element of the result is one sum over k, in
// order and in f32 (f64 for f64).
#pragma once

#include <cstdint>
#include <string>

namespace fsdpc::runtime::emulation {

/// A matrix in memory: the element at row r and column c is values[r * row + c
/// * column].
struct Matrix {
  const void *values = nullptr;
  std::string dtype = "f32";
  int64_t row = 0, column = 1;
};

enum class Epilogue { none, gelu, geluGrad, sumA, sumB };

/// C[m×n] = A[m×k] · B[k×n], plus a matrix, plus a bias, and what the epilogue
/// makes of it.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b;
  void *c = nullptr; ///< rows are rowC elements apart
  std::string dtypeC = "f32";
  int64_t rowC = 0;
  /// A matrix that is added, which may be c itself, and a row of c's type that
  /// is added to every row; or null.
  const void *addend = nullptr, *bias = nullptr;
  Epilogue epilogue = Epilogue::none;
  const void *input = nullptr; ///< where GELU's slope is taken
  /// The values that GELU is applied to, or the sums over k of A or B. May be
  /// null for GELU.
  void *extra = nullptr;
};

/// Runs on the calling thread. C must not overlap A or B.
void multiply(const Product &product);

} // namespace fsdpc::runtime::emulation

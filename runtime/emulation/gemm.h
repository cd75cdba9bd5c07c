// Matrix products in plain loops. Correct first, and blocked so that training
// small models takes seconds. Each element of the result is one sum over k, in
// order and in f32 (f64 for f64).
#pragma once

#include <cstdint>
#include <string>

namespace fsdpc::runtime::emulation {

// A matrix in memory: the element at row r and column c is values[r * row + c *
// column].
struct Matrix {
  const void *values = nullptr;
  std::string dtype = "f32";
  int64_t row = 0, column = 1;
};

// C[m×n] = A[m×k] · B[k×n], plus C, plus a bias.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b;
  void *c = nullptr; // rows are rowC elements apart
  std::string dtypeC = "f32";
  int64_t rowC = 0;
  bool add = false;           // adds to what c holds
  const void *bias = nullptr; // a row of c's type, added to every row; or null
};

// Runs on the calling thread. C must not overlap A or B.
void multiply(const Product &product);

} // namespace fsdpc::runtime::emulation

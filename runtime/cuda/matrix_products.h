// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Newton and Schulz's steps on a GPU (fsdp.orthogonalize), with products by the
// library. Matrices of one shape share their plans.
#pragma once

#include "runtime/core/matrices.h"
#include "runtime/cuda/products.h"

#include <cstdint>
#include <map>
#include <utility>

namespace fsdpc::runtime {

class MatrixProducts {
public:
  /// Keeps references.
  MatrixProducts(CudaContext &context, Products &products)
      : context(context), products(products) {}

  /// Plans the products of the shape of each matrix that a program of the
  /// manifest orthogonalises.
  Status plan(const Manifest &manifest);

  /// The memory of a call, in device memory.
  struct Room {
    /// Four times the matrix, each part rounded up to four elements.
    float *matrices;
    double *digits;  ///< normDigits per matrixChunk elements
    void *workspace; ///< of the library
  };
  /// Enqueues the orthogonalisation of one member on stream COMPUTE.
  void orthogonalize(const Member &member, const float *update, float *result,
                     const Room &room, const MatrixSteps &by,
                     double factor) const;

private:
  /// X·Xᵀ, or Xᵀ·X of a tall matrix; the square of that; and a polynomial of it
  /// times X, or X times it.
  struct Shape {
    Product gram, square, apply;
  };
  Result<Shape> planned(int64_t rows, int64_t columns);

  CudaContext &context;
  Products &products;
  std::map<std::pair<int64_t, int64_t>, Shape> shapes; ///< by rows and columns
};

} // namespace fsdpc::runtime

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products on a GPU. A plan with any number of batch axes is cut into
// the fewest strided-batched products of cuBLASLt. Types that the library does
// not take run on a plain kernel of the runtime.
#pragma once

#include "runtime/cuda/context.h"

#include <map>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// A plan as one shape of the library, called at several offsets (in elements).
struct ProductCalls {
  struct Call {
    int64_t a = 0, b = 0, c = 0;
  };
  CudaGemmShape shape; ///< its `count` covers as many batch axes as strides can
  std::vector<Call> calls; ///< one per index of the other batch axes
};
/// Cuts a plan into calls. A pure function, tested on its own.
ProductCalls cutProduct(const MatmulPlan &plan);

/// One prepared product.
class Product {
public:
  /// Enqueues the product on stream COMPUTE.
  void run(CudaContext &context, const CudaGemmOperands &operands,
           void *workspace) const;

private:
  friend class Products;
  /// Does by kernels what the library does behind a product's sums.
  void finish(CudaContext &context, const CudaGemmOperands &operands) const;

  CudaGemm gemm = nullptr;               ///< null: the plain kernel
  std::vector<ProductCalls::Call> calls; ///< offsets in bytes
  PlainProduct plain;
  FinishProduct ending; ///< as far as the shape has one
  SumRows rows;         ///< of no columns unless the epilogue adds rows
  bool sumsLhs = false; ///< those of A
  bool apart = false;   ///< by separate kernels
};

/// Makes products. Equal shapes share the algorithm that the library chose.
class Products {
public:
  explicit Products(CudaContext &context) : context(context) {}
  ~Products();
  Products(const Products &) = delete;

  /// Prepares a product, which may ask the library's heuristic and take long;
  /// for the start of a program, never for a step. Fails if it cannot be run.
  Result<Product> plan(const MatmulPlan &plan);
  /// Takes these algorithms for the shapes that have one; before any plan().
  /// With `mayRound` they may round partial sums.
  void tune(std::map<std::string, std::string> codesByShape, bool mayRound) {
    codes = std::move(codesByShape);
    roundsParts = mayRound;
  }
  /// One line per shape: what the library chose.
  const std::vector<std::string> &choices() const { return lines; }

private:
  /// Keeps ownership of the result: a Product may not run after this object is
  /// destroyed.
  Result<CudaGemm> planned(const CudaGemmShape &shape);

  CudaContext &context;
  /// By keyOf (product_tuning.h).
  std::map<std::string, CudaGemm> gemms;
  std::map<std::string, std::string> codes;
  bool roundsParts = false;
  std::vector<std::string> lines;
};

} // namespace fsdpc::runtime

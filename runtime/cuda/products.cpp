// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products by cuBLASLt. A plan may have any number of batch axes, but
// the library takes one with a stride. So axes that are contiguous with each
// other are merged, entries that share B become more rows of one product, the
// longest remaining axis becomes the library's batch, and the rest become
// separate calls.
#include "runtime/cuda/products.h"
#include "runtime/abi/cuda_scratch.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/core/plan_checks.h"
#include "runtime/cuda/product_tuning.h"
#include "runtime/numeric/reduce.h"
#include "runtime/support/concat.h"

#include <algorithm>

namespace fsdpc::runtime {

namespace {

// A batch axis: its length, and the strides of A, B and C in elements.
struct Axis {
  int64_t extent, a, b, c;
};

// Returns the batch axes with more than one entry, in order of falling strides
// of the result, with adjacent axes merged where they are contiguous.
std::vector<Axis> mergedAxes(const MatmulPlan &p) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < p.batch.size(); ++i)
    if (p.batch[i] != 1)
      axes.push_back({p.batch[i], p.strideA[i], p.strideB[i], p.strideC[i]});
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis &x, const Axis &y) { return x.c > y.c; });
  std::vector<Axis> merged;
  for (const Axis &axis : axes) {
    if (!merged.empty()) {
      // The outer axis steps over exactly one run of the inner one in all three
      // matrices, so both count as one axis with the inner strides.
      Axis &last = merged.back();
      if (last.a == axis.extent * axis.a && last.b == axis.extent * axis.b &&
          last.c == axis.extent * axis.c) {
        last = {last.extent * axis.extent, axis.a, axis.b, axis.c};
        continue;
      }
    }
    merged.push_back(axis);
  }
  return merged;
}

// A shape for the log: "1024x768x768 AB' bf16 bf16 f32 +".
std::string nameOf(const CudaGemmShape &s) {
  return concat(s.m, "x", s.n, "x", s.k, s.transposeA ? " A'" : " A",
                s.transposeB ? "B'" : "B",
                s.count > 1 ? concat(" of ", s.count) : "", " ", s.dtypeA, " ",
                s.dtypeB, " ", s.dtypeC, s.beta != 0 ? " +" : "",
                s.addend ? " + addend" : "", s.bias ? " + bias" : "",
                s.epilogue.empty() ? "" : " " + s.epilogue);
}

bool hasEnding(const CudaGemmShape &s) {
  return s.bias || s.addend || !s.epilogue.empty();
}

} // namespace

// Fewer calls with more entries each are faster, so the longest remaining axis
// becomes the strided batch. The number of calls is the product of the others.
ProductCalls cutProduct(const MatmulPlan &p) {
  ProductCalls cut;
  CudaGemmShape &s = cut.shape;
  s.m = p.m, s.n = p.n, s.k = p.k;
  s.transposeA = p.transposeA, s.transposeB = p.transposeB;
  s.lda = p.lda, s.ldb = p.ldb, s.ldc = p.ldc;
  s.dtypeA = p.dtypeA, s.dtypeB = p.dtypeB, s.dtypeC = p.dtypeC;
  s.beta = p.accumulate ? 1 : 0;
  s.bias = p.bias, s.addend = p.addend;
  s.epilogue = p.epilogue;
  std::vector<Axis> axes = mergedAxes(p);
  // Entries whose rows follow each other and that share B are one product.
  if (!axes.empty() && !s.transposeA && axes.back().b == 0 &&
      axes.back().a == s.m * s.lda && axes.back().c == s.m * s.ldc) {
    s.m *= axes.back().extent;
    axes.pop_back();
  }
  auto longest = std::max_element(
      axes.begin(), axes.end(),
      [](const Axis &x, const Axis &y) { return x.extent < y.extent; });
  if (longest != axes.end()) {
    s.count = longest->extent;
    s.strideA = longest->a, s.strideB = longest->b, s.strideC = longest->c;
    axes.erase(longest);
  }
  cut.calls = {{}};
  for (const Axis &axis : axes) {
    std::vector<ProductCalls::Call> calls;
    for (const ProductCalls::Call &call : cut.calls)
      for (int64_t i = 0; i < axis.extent; ++i)
        calls.push_back(
            {call.a + i * axis.a, call.b + i * axis.b, call.c + i * axis.c});
    cut.calls = std::move(calls);
  }
  return cut;
}

Products::~Products() {
  for (auto &[key, gemm] : gemms)
    if (gemm)
      context.api.destroyGemm(gemm);
}

// Returns the library's plan of a shape, or null if the library has no product
// of this kind. Any other failure of the library is an error: its causes, such
// as a lack of memory, would make the plain loops slow without a word. Refusals
// are remembered too.
Result<CudaGemm> Products::planned(const CudaGemmShape &s) {
  std::string key = keyOf(s);
  auto found = gemms.find(key);
  if (found != gemms.end())
    return found->second;
  CudaGemm gemm = nullptr;
  CudaChoice choice;
  CudaStatus status =
      context.api.planGemm(s, size_t(libraryWorkspaceBytes), gemm, choice);
  if (status != cudaOk && status != cudaRefused)
    return runError("cannot plan the product " + nameOf(s) + ": " +
                    context.api.errorText(status));
  if (status == cudaRefused)
    gemm = nullptr;
  auto code = codes.find(key);
  if (gemm && code != codes.end()) {
    CudaChoice tuned;
    status = context.api.chooseGemm(gemm, size_t(libraryWorkspaceBytes),
                                    roundsParts, code->second, tuned);
    // As its own kind of device refuses none, such a choice is not this GPU's.
    choice.algorithm =
        status == cudaOk
            ? tuned.algorithm + " (tuned)"
            : choice.algorithm + " (not tuned: " + tuned.algorithm + ")";
  }
  const char *otherwise =
      hasEnding(s) ? "finished by a separate kernel: " : "plain loops: ";
  lines.push_back(
      "product " + nameOf(s) + ": " +
      (gemm ? choice.algorithm : otherwise + refusal(context, status, choice)));
  gemms.emplace(std::move(key), gemm);
  return gemm;
}

// If the library refuses a product with an epilogue, it is asked for the
// product alone.
Result<Product> Products::plan(const MatmulPlan &p) {
  if (!isFloatType(p.dtypeA) || !isFloatType(p.dtypeB) ||
      !isFloatType(p.dtypeC))
    return inputError("matrix product of types '" + p.dtypeA + "', '" +
                      p.dtypeB + "', '" + p.dtypeC + "' is not supported");
  FSDPC_TRY(checkShape(p));
  Product product;
  ProductCalls cut = cutProduct(p);
  // The library needs operands of one type.
  auto ofLibrary = [&]() -> Result<CudaGemm> {
    if (p.dtypeA != p.dtypeB)
      return nullptr;
    return planned(cut.shape);
  };
  Result<CudaGemm> gemm = ofLibrary();
  FSDPC_TRY(gemm);
  product.apart = hasEnding(cut.shape) && !*gemm;
  if (product.apart) {
    cut.shape.bias = cut.shape.addend = false;
    cut.shape.epilogue.clear();
    gemm = ofLibrary();
    FSDPC_TRY(gemm);
  }
  product.gemm = *gemm;
  // Offsets of calls are in elements up to here; `run` adds them to byte
  // pointers.
  product.calls = cut.calls;
  for (ProductCalls::Call &call : product.calls) {
    call.a *= dtypeBytes(p.dtypeA);
    call.b *= dtypeBytes(p.dtypeB);
    call.c *= dtypeBytes(p.dtypeC);
  }
  // The plain kernels are described in any case.
  // A transposed operand is one with row and column strides exchanged.
  const CudaGemmShape &s = cut.shape;
  PlainProduct &plain = product.plain;
  plain.typeA = wireType(p.dtypeA);
  plain.typeB = wireType(p.dtypeB);
  plain.typeC = wireType(p.dtypeC);
  plain.m = s.m, plain.n = s.n, plain.k = s.k;
  plain.rowA = s.transposeA ? 1 : s.lda;
  plain.columnA = s.transposeA ? s.lda : 1;
  plain.rowB = s.transposeB ? 1 : s.ldb;
  plain.columnB = s.transposeB ? s.ldb : 1;
  plain.rowC = s.ldc;
  plain.entries = s.count;
  plain.strideA = s.strideA, plain.strideB = s.strideB;
  plain.strideC = s.strideC;
  plain.add = p.accumulate;
  FinishProduct &ending = product.ending;
  ending.type = plain.typeC;
  ending.m = s.m, ending.n = s.n, ending.row = s.ldc;
  ending.entries = s.count, ending.stride = s.strideC;
  ending.end = p.epilogue == "gelu" || p.epilogue == "gelu_extra"
                   ? ProductEnd::gelu
               : p.epilogue == "gelu_grad" ? ProductEnd::geluGrad
                                           : ProductEnd::none;
  product.sumsLhs = p.epilogue == "sum_lhs";
  if (product.sumsLhs)
    product.rows = {nullptr, nullptr,       plain.typeA, s.k,
                    s.m,     plain.columnA, plain.rowA};
  else if (p.epilogue == "sum_rhs")
    product.rows = {nullptr, nullptr,    plain.typeB,  s.k,
                    s.n,     plain.rowB, plain.columnB};
  return product;
}

void Product::run(CudaContext &context, const CudaGemmOperands &operands,
                  void *workspace) const {
  for (const ProductCalls::Call &call : calls) {
    // Only biases are read by products of several calls.
    CudaGemmOperands own = operands;
    own.a = static_cast<const char *>(operands.a) + call.a;
    own.b = static_cast<const char *>(operands.b) + call.b;
    own.c = static_cast<char *>(operands.c) + call.c;
    if (gemm) {
      context.check(context.api.gemm(
          gemm, apart ? CudaGemmOperands{own.a, own.b, own.c} : own, workspace,
          context.streams[FSDPC_STREAM_COMPUTE]));
    } else {
      PlainProduct loops = plain;
      loops.a = own.a, loops.b = own.b, loops.c = own.c;
      context.launch(loops, loops.entries * loops.m * loops.n,
                     FSDPC_STREAM_COMPUTE);
    }
    if (apart)
      finish(context, own);
  }
}

// After the product, since the library overwrites C. A 16-bit result is then
// rounded twice: after the product and here.
void Product::finish(CudaContext &context,
                     const CudaGemmOperands &operands) const {
  if (rows.columns > 0) {
    SumRows sums = rows;
    sums.from = sumsLhs ? operands.a : operands.b;
    sums.to = operands.extra;
    return context.launch(sums, sums.columns, FSDPC_STREAM_COMPUTE);
  }
  FinishProduct own = ending;
  own.c = operands.c, own.bias = operands.bias, own.addend = operands.addend;
  own.input = operands.input, own.extra = operands.extra;
  context.launch(own, own.entries * own.m * own.n, FSDPC_STREAM_COMPUTE);
}

} // namespace fsdpc::runtime

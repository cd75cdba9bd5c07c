// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Single-threaded products on oneDNN's C interface (gemm.h, onednn.h).
//
// Only oneDNN's BRGEMM implementation is fast and leaves all scratch memory
// to the caller. It needs rows without gaps, so a product of other strides runs
// on dense copies, and one of unsupported types on copies widened to f32. f16
// counts as unsupported everywhere: few processors have it, and with the same
// conversions on all of them the bits are the same.
#include "runtime/host/gemm.h"
#include "runtime/host/matrix_copy.h"
#include "runtime/host/onednn.h"
#include "runtime/numeric/reduce.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace fsdpc::runtime {

void roundFloats(const float *from, int64_t count, ElementType type, void *to) {
  castToWire(from, WireType::f32, type, count, to);
}

namespace {
using namespace onednn;

// The three operands of a product as oneDNN describes them.
struct Matrices {
  dnnl_memory_desc_t a, b, c;
  explicit Matrices(const GemmShape &s)
      : a(describe(s.m, s.k, s.rowA, s.columnA, s.a)),
        b(describe(s.k, s.n, s.rowB, s.columnB, s.b)),
        c(describe(s.m, s.n, s.rowC, 1, s.c)) {}
  // A times each of the pieces of B's columns.
  Matrices(const GemmShape &s, int64_t pieces)
      : a(describePieces(s.m, s.k, s.rowA, s.columnA, 1, s.a)),
        b(describePieces(s.k, s.n, s.rowB, s.columnB, pieces, s.b)),
        c(describePieces(s.m, s.n, s.rowC, 1, pieces, s.c)) {}
};

// oneDNN's first implementation of a product whose scratch fits, if it has one.
class FoundProduct {
public:
  FoundProduct() = default;
  FoundProduct(const GemmShape &s, size_t mostScratch)
      : FoundProduct(Matrices(s), s.accumulate, mostScratch) {
    int64_t pieces = columnPieces(s);
    if (pieces == 1 || !isBrgemm())
      return;
    FoundProduct cut(Matrices(s, pieces), s.accumulate, mostScratch);
    if (cut.isBrgemm())
      *this = std::move(cut);
    else
      skips |= cut.avoidsScratch();
  }
  FoundProduct(const Matrices &of, bool accumulate, size_t mostScratch)
      : matrices(of) {
    // oneDNN lists implementations by its own preference, fastest first.
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_iterator_t iterator;
    // A failure of either call means that oneDNN has no such product, which is
    // an answer and not an error.
    if (dnnl_matmul_desc_init(&matmul, &of.a, &of.b, nullptr, &of.c) !=
            dnnl_success ||
        dnnl_primitive_desc_iterator_create(&iterator, &matmul,
                                            Attributes(accumulate), cpuEngine(),
                                            nullptr) != dnnl_success)
      return;
    do {
      desc = dnnl_primitive_desc_iterator_fetch(iterator);
      if (desc && scratchOf(desc) > mostScratch) {
        skips = true;
        dnnl_primitive_desc_destroy(std::exchange(desc, nullptr));
      }
    } while (!desc &&
             dnnl_primitive_desc_iterator_next(iterator) == dnnl_success);
    dnnl_primitive_desc_iterator_destroy(iterator);
  }
  FoundProduct(const FoundProduct &) = delete;
  FoundProduct &operator=(FoundProduct &&other) {
    std::swap(desc, other.desc);
    std::swap(skips, other.skips);
    matrices = other.matrices;
    return *this;
  }
  ~FoundProduct() {
    if (desc)
      dnnl_primitive_desc_destroy(desc);
  }

  explicit operator bool() const { return desc; }
  // Returns true if implementations before this one need more scratch.
  bool avoidsScratch() const { return skips; }
  const Matrices &operands() const { return *matrices; }
  // Hands the description over to its new owner.
  dnnl_primitive_desc_t take() { return std::exchange(desc, nullptr); }

  // Returns true for oneDNN's fastest implementation, the only one that leaves
  // all scratch memory to the caller. The older one allocates packed panels in
  // each call.
  bool isBrgemm() const {
    const char *name = "";
    if (desc)
      dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    return std::strncmp(name, "brg", 3) == 0;
  }

private:
  dnnl_primitive_desc_t desc = nullptr;
  bool skips = false;
  std::optional<Matrices> matrices;
};

// A product that oneDNN runs on the operands as they are.
class NativeGemm : public Gemm {
public:
  NativeGemm(int threads, FoundProduct &found)
      : avoids(found.avoidsScratch()),
        product(found.take(), threads,
                {{DNNL_ARG_SRC, found.operands().a},
                 {DNNL_ARG_WEIGHTS, found.operands().b},
                 {DNNL_ARG_DST, found.operands().c}}) {}

  size_t scratchBytes() const override { return product.scratchBytes(); }
  bool avoidsScratch() const override { return avoids; }
  void prepare() override { product.prepare(); }
  void run(int thread, const void *a, const void *b, void *c,
           void *scratch) override {
    product.run(thread, {a, b, c, scratch});
  }

private:
  bool avoids;
  Primitive product;
};

// A product that first copies those matrices that `inner` needs in another
// layout or type. Scratch memory: [the product's own | A | B | C].
class CopyingGemm : public Gemm {
public:
  CopyingGemm(const GemmShape &outer, const GemmShape &inner,
              std::shared_ptr<Gemm> product)
      : CopyingGemm(Matrices(outer), Matrices(inner), std::move(product),
                    // The product adds if it writes C directly; else the copy
                    // of C does.
                    outer.accumulate && !inner.accumulate) {}

  size_t scratchBytes() const override {
    return product->scratchBytes() + a.denseBytes() + b.denseBytes() +
           c.denseBytes();
  }
  bool avoidsScratch() const override { return product->avoidsScratch(); }
  void prepare() override { product->prepare(); }

  void run(int thread, const void *fromA, const void *fromB, void *toC,
           void *scratch) override {
    char *denseA = static_cast<char *>(scratch) + product->scratchBytes();
    char *denseB = denseA + a.denseBytes(), *denseC = denseB + b.denseBytes();
    // A copy that is not needed does nothing.
    a.run(fromA, denseA);
    b.run(fromB, denseB);
    product->run(thread, a.denseBytes() ? denseA : fromA,
                 b.denseBytes() ? denseB : fromB, c.denseBytes() ? denseC : toC,
                 scratch);
    c.run(denseC, toC);
  }

private:
  CopyingGemm(const Matrices &of, const Matrices &copies,
              std::shared_ptr<Gemm> product, bool adds)
      : product(std::move(product)), a(of.a, copies.a, copies.a, false),
        b(of.b, copies.b, copies.b, false), c(copies.c, of.c, copies.c, adds) {}

  std::shared_ptr<Gemm> product;
  MatrixCopy a, b, c;
};

} // namespace

// In order of preference: BRGEMM on the operands as they are; BRGEMM on dense
// copies; any implementation on the operands as they are; any on dense copies;
// and last on copies widened to f32. Each must fit into `mostScratch`.
Result<std::shared_ptr<Gemm>> Gemm::make(const GemmShape &of, int threads,
                                         size_t mostScratch) {
  onednn::SingleThreadedOpenMp single;
  GemmShape shape = withFixedStrides(of);
  GemmShape inner = denseShape(shape, false);
  // Copies and the product's own scratch share what is allowed.
  auto room = [&](const GemmShape &copies) {
    return mostScratch - size_t(copyBytes(shape, copies));
  };
  auto hasRoom = [&](const GemmShape &copies) {
    return size_t(copyBytes(shape, copies)) <= mostScratch;
  };
  FoundProduct dense;
  auto isF16 = [](ElementType type) { return type == ElementType::f16; };
  if (!isF16(shape.a) && !isF16(shape.b) && !isF16(shape.c)) {
    FoundProduct given(shape, mostScratch);
    if (given.isBrgemm())
      return std::make_shared<NativeGemm>(threads, given);
    if (hasRoom(inner))
      dense = FoundProduct(inner, room(inner));
    // Copies cost time; without BRGEMM they would gain nothing.
    if (!dense.isBrgemm() && given)
      return std::make_shared<NativeGemm>(threads, given);
  }
  if (!dense) {
    // All in f32, which oneDNN supports on every processor.
    inner = denseShape(shape, true);
    if (hasRoom(inner))
      dense = FoundProduct(inner, room(inner));
  }
  if (dense) {
    auto product = std::make_shared<NativeGemm>(threads, dense);
    return std::make_shared<CopyingGemm>(shape, inner, std::move(product));
  }
  return inputError(concat("oneDNN does not support a matrix product of ",
                           shape.m, "x", shape.k, " and ", shape.k, "x",
                           shape.n, " within ", mostScratch,
                           " bytes of scratch memory"));
}

Result<std::shared_ptr<Gemm>> GemmCache::get(const GemmShape &shape) {
  // The entry stays empty if making it fails, so a later call tries again.
  std::shared_ptr<Gemm> &gemm = gemms[shape];
  if (!gemm) {
    auto made =
        Gemm::make(shape, threads, size_t(productScratchBytes(shape, isa)));
    FSDPC_TRY(made);
    gemm = std::move(*made);
  }
  return gemm;
}

int64_t GemmCache::avoidances() const {
  return std::count_if(gemms.begin(), gemms.end(), [](const auto &entry) {
    return entry.second && entry.second->avoidsScratch();
  });
}

} // namespace fsdpc::runtime

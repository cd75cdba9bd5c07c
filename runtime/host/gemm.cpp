// Single-threaded products on oneDNN's C interface (gemm.h). The C++ interface
// builds a hash map in every call. Here the memory objects are made once per
// thread, and a call only sets their addresses.
//
// Only oneDNN's BRGEMM implementation is fast and leaves all scratch memory
// to the caller. It needs rows without gaps, so a product of other strides runs
// on dense copies, and one of unsupported types on copies widened to f32. f16
// counts as unsupported everywhere: few processors have it, and with the same
// conversions on all of them the bits are the same.
#include "runtime/host/gemm.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/reduce.h"
#include "runtime/host/openmp.h"

#include <algorithm>
#include <cstring>
#include <dnnl.h>
#include <tuple>
#include <utility>

namespace fsdpc::runtime {

static WireType wireOf(ElementType type) {
  return type == ElementType::f32    ? WireType::f32
         : type == ElementType::bf16 ? WireType::bf16
                                     : WireType::f16;
}

void roundFloats(const float *from, int64_t count, ElementType type, void *to) {
  castToWire(from, WireType::f32, wireOf(type), count, to);
}

namespace {

// One engine for the process, never destroyed: primitives use it to the end.
dnnl_engine_t cpuEngine() {
  static dnnl_engine_t engine = [] {
    dnnl_engine_t result = nullptr;
    if (dnnl_engine_create(&result, dnnl_cpu, 0) != dnnl_success)
      fail("oneDNN cannot create a CPU engine");
    return result;
  }();
  return engine;
}

// oneDNN chooses a primitive's blocking by the number of OpenMP threads of the
// thread that creates it. One thread gives the same blocking, and so the same
// bits, for every --threads.
class SingleThreadedOpenMp {
public:
  SingleThreadedOpenMp() : before(omp_get_max_threads()) {
    omp_set_num_threads(1);
  }
  ~SingleThreadedOpenMp() { omp_set_num_threads(before); }

private:
  int before;
};

void check(dnnl_status_t status, const char *what) {
  if (status != dnnl_success)
    fail(std::string("oneDNN: ") + what + " failed with status " +
         std::to_string(int(status)));
}

dnnl_data_type_t dataType(ElementType type) {
  return type == ElementType::f32    ? dnnl_f32
         : type == ElementType::bf16 ? dnnl_bf16
                                     : dnnl_f16;
}

// Strides are in elements. A transposed matrix is one whose row stride is 1.
dnnl_memory_desc_t describe(int64_t rows, int64_t columns, int64_t rowStride,
                            int64_t columnStride, ElementType type) {
  dnnl_memory_desc_t desc;
  dnnl_dims_t dims = {rows, columns}, strides = {rowStride, columnStride};
  check(
      dnnl_memory_desc_init_by_strides(&desc, 2, dims, dataType(type), strides),
      "describing a matrix");
  return desc;
}

size_t round64(size_t bytes) { return (bytes + 63) / 64 * 64; }

size_t scratchOf(const_dnnl_primitive_desc_t desc) {
  return dnnl_memory_desc_get_size(
      dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0));
}

// A primitive of up to three matrices and a scratchpad, with one set of memory
// objects per thread.
class Primitive {
public:
  // Takes ownership of `desc`. `operands` are the execution arguments and their
  // matrices.
  Primitive(dnnl_primitive_desc_t desc, int threads,
            std::vector<std::pair<int, dnnl_memory_desc_t>> operands)
      : desc(desc), threads(threads), operands(std::move(operands)) {
    // The scratchpad is an operand like the matrices, always the last one.
    this->operands.push_back(
        {DNNL_ARG_SCRATCHPAD,
         *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0)});
  }
  Primitive(const Primitive &) = delete;
  ~Primitive() {
    for (Call &call : calls) {
      for (dnnl_exec_arg_t &argument : call.arguments)
        dnnl_memory_destroy(argument.memory);
      dnnl_stream_destroy(call.stream);
    }
    if (primitive)
      dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(desc);
  }

  size_t scratchBytes() const {
    return round64(dnnl_memory_desc_get_size(&operands.back().second));
  }

  // Kept apart from the constructor: the memory table makes products but never
  // runs them.
  void prepare() {
    if (primitive)
      return;
    SingleThreadedOpenMp single;
    // Generates and compiles the kernel, which takes milliseconds.
    check(dnnl_primitive_create(&primitive, desc), "creating a primitive");
    // oneDNN may return a cached primitive that it made from another
    // description.
    const_dnnl_primitive_desc_t made = nullptr;
    check(dnnl_primitive_get_primitive_desc(primitive, &made),
          "describing a primitive");
    if (scratchOf(made) > scratchBytes())
      fail(
          "oneDNN needs more scratch memory for a primitive than it asked for");
    // A memory object holds one address, so each thread needs its own.
    calls.resize(threads);
    for (Call &call : calls) {
      check(dnnl_stream_create(&call.stream, cpuEngine(),
                               dnnl_stream_default_flags),
            "creating a stream");
      // DNNL_MEMORY_NONE: without memory of its own; `run` sets the address.
      for (auto &[argument, matrix] : operands) {
        call.arguments.push_back({argument, nullptr});
        check(dnnl_memory_create(&call.arguments.back().memory, &matrix,
                                 cpuEngine(), DNNL_MEMORY_NONE),
              "creating an operand");
      }
    }
  }

  // Runs the primitive. `addresses` are in the order of the operands, with the
  // scratchpad last.
  void run(int thread, std::initializer_list<const void *> addresses) {
    Call &call = calls[thread];
    auto argument = call.arguments.begin();
    for (const void *address : addresses)
      dnnl_memory_set_data_handle((argument++)->memory,
                                  const_cast<void *>(address));
    check(dnnl_primitive_execute(primitive, call.stream,
                                 int(call.arguments.size()),
                                 call.arguments.data()),
          "a primitive");
  }

private:
  // The arguments with which one thread calls the primitive.
  struct Call {
    dnnl_stream_t stream = nullptr;
    std::vector<dnnl_exec_arg_t> arguments;
  };

  // Owned, as all of oneDNN's handles here.
  dnnl_primitive_desc_t desc;
  int threads;
  std::vector<std::pair<int, dnnl_memory_desc_t>> operands;
  dnnl_primitive_t primitive = nullptr;
  std::vector<Call> calls;
};

// The attributes of every primitive: the caller provides scratch memory, and
// the result is added to the destination if `accumulate`.
class Attributes {
public:
  explicit Attributes(bool accumulate) {
    check(dnnl_primitive_attr_create(&attributes), "creating attributes");
    dnnl_primitive_attr_set_scratchpad_mode(attributes,
                                            dnnl_scratchpad_mode_user);
    check(dnnl_post_ops_create(&sum), "creating post-ops");
    if (accumulate) {
      // dst = result + 1 · dst.
      dnnl_post_ops_append_sum(sum, 1);
      dnnl_primitive_attr_set_post_ops(attributes, sum);
    }
  }
  Attributes(const Attributes &) = delete;
  ~Attributes() {
    dnnl_post_ops_destroy(sum);
    dnnl_primitive_attr_destroy(attributes);
  }
  operator const_dnnl_primitive_attr_t() const { return attributes; }

private:
  dnnl_primitive_attr_t attributes;
  dnnl_post_ops_t sum;
};

// The three operands of a product as oneDNN describes them.
struct Matrices {
  dnnl_memory_desc_t a, b, c;
  explicit Matrices(const GemmShape &s)
      : a(describe(s.m, s.k, s.rowA, s.columnA, s.a)),
        b(describe(s.k, s.n, s.rowB, s.columnB, s.b)),
        c(describe(s.m, s.n, s.rowC, 1, s.c)) {}
};

// oneDNN's first implementation of a product whose scratch fits, if it has one.
class FoundProduct {
public:
  FoundProduct() = default;
  FoundProduct(const GemmShape &s, size_t mostScratch) {
    Matrices of(s);
    // oneDNN lists implementations by its own preference, fastest first.
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_iterator_t iterator;
    // A failure of either call means that oneDNN has no such product, which is
    // an answer and not an error.
    if (dnnl_matmul_desc_init(&matmul, &of.a, &of.b, nullptr, &of.c) !=
            dnnl_success ||
        dnnl_primitive_desc_iterator_create(
            &iterator, &matmul, Attributes(s.accumulate), cpuEngine(),
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
    return *this;
  }
  ~FoundProduct() {
    if (desc)
      dnnl_primitive_desc_destroy(desc);
  }

  explicit operator bool() const { return desc; }
  // Returns true if implementations before this one need more scratch.
  bool avoidsScratch() const { return skips; }
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
};

// A product that oneDNN runs on the operands as they are.
class NativeGemm : public Gemm {
public:
  NativeGemm(const GemmShape &s, int threads, FoundProduct &found)
      : NativeGemm(Matrices(s), threads, found.avoidsScratch(), found.take()) {}

  size_t scratchBytes() const override { return product.scratchBytes(); }
  bool avoidsScratch() const override { return avoids; }
  void prepare() override { product.prepare(); }
  void run(int thread, const void *a, const void *b, void *c,
           void *scratch) override {
    product.run(thread, {a, b, c, scratch});
  }

private:
  NativeGemm(const Matrices &of, int threads, bool avoids,
             dnnl_primitive_desc_t desc)
      : avoids(avoids), product(desc, threads,
                                {{DNNL_ARG_SRC, of.a},
                                 {DNNL_ARG_WEIGHTS, of.b},
                                 {DNNL_ARG_DST, of.c}}) {}

  bool avoids;
  Primitive product;
};

// Copies a matrix into or out of scratch memory row by row, without transposing
// it. The copy may change the type, and may add to its destination. oneDNN's
// reorders would do the same, but where a processor has no instructions for a
// 16-bit type they convert one element at a time, which costs more than the
// product.
class Copy {
public:
  // `dense` is the one of the two that lies in scratch memory; `adds` makes the
  // copy add to its destination.
  Copy(const dnnl_memory_desc_t &from, const dnnl_memory_desc_t &to,
       const dnnl_memory_desc_t &dense, bool adds)
      : adds(adds) {
    if (dnnl_memory_desc_equal(&from, &to))
      return;
    bytes = round64(dnnl_memory_desc_get_size(&dense));
    // The axis whose elements are not adjacent: what this calls a row may be a
    // column.
    int outer = from.format_desc.blocking.strides[1] == 1 ? 0 : 1;
    rows = from.dims[outer];
    columns = from.dims[1 - outer];
    fromType = wireOf(from.data_type);
    toType = wireOf(to.data_type);
    fromStride = from.format_desc.blocking.strides[outer] * wireBytes(fromType);
    toStride = to.format_desc.blocking.strides[outer] * wireBytes(toType);
  }

  // Bytes of the dense matrix, or 0 if no copy is needed.
  size_t denseBytes() const { return bytes; }

  void run(const void *from, void *to) const {
    for (int64_t row = 0; row < rows; ++row)
      copyRow(static_cast<const char *>(from) + row * fromStride,
              static_cast<char *>(to) + row * toStride);
  }

private:
  static WireType wireOf(dnnl_data_type_t type) {
    return type == dnnl_f32    ? WireType::f32
           : type == dnnl_bf16 ? WireType::bf16
                               : WireType::f16;
  }

  void copyRow(const char *from, char *to) const {
    if (adds)
      addRow(from, to);
    else if (fromType == toType)
      std::memcpy(to, from, columns * wireBytes(fromType));
    else
      castToWire(from, fromType, toType, columns, to);
  }

  // to += from, in f32, rounded once.
  void addRow(const char *from, char *to) const {
    constexpr int64_t piece = 256;
    float sums[piece];
    for (int64_t i = 0; i < columns; i += piece) {
      int64_t length = std::min(piece, columns - i);
      char *target = to + i * wireBytes(toType);
      Addend terms[] = {{from + i * wireBytes(fromType), fromType},
                        {target, toType}};
      sumRanks(terms, 2, WireType::f32, length, sums, false);
      castToWire(sums, WireType::f32, toType, length, target);
    }
  }

  bool adds;
  size_t bytes = 0;
  int64_t rows = 0, columns = 0, fromStride = 0, toStride = 0;
  WireType fromType = WireType::f32, toType = WireType::f32;
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
  Copy a, b, c;
};

} // namespace

// In order of preference: BRGEMM on the operands as they are; BRGEMM on dense
// copies; any implementation on the operands as they are; any on dense copies;
// and last on copies widened to f32. Each must fit into `mostScratch`.
Result<std::shared_ptr<Gemm>> Gemm::make(const GemmShape &of, int threads,
                                         size_t mostScratch) {
  SingleThreadedOpenMp single;
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
      return std::make_shared<NativeGemm>(shape, threads, given);
    if (hasRoom(inner))
      dense = FoundProduct(inner, room(inner));
    // Copies cost time; without BRGEMM they would gain nothing.
    if (!dense.isBrgemm() && given)
      return std::make_shared<NativeGemm>(shape, threads, given);
  }
  if (!dense) {
    // All in f32, which oneDNN supports on every processor.
    inner = denseShape(shape, true);
    if (hasRoom(inner))
      dense = FoundProduct(inner, room(inner));
  }
  if (dense) {
    auto product = std::make_shared<NativeGemm>(inner, threads, dense);
    return std::make_shared<CopyingGemm>(shape, inner, std::move(product));
  }
  return Error{"oneDNN does not support a matrix product of " +
               std::to_string(shape.m) + "x" + std::to_string(shape.k) +
               " and " + std::to_string(shape.k) + "x" +
               std::to_string(shape.n) + " within " +
               std::to_string(mostScratch) + " bytes of scratch memory"};
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

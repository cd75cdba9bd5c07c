// Single-threaded products on oneDNN's C interface; see gemm.h. The C++ one
// builds a hash map a call, here memory objects are made once a thread and
// pointed at the operands.
#include "runtime/host/gemm.h"
#include "runtime/comm/bfloat16.h"
#include "runtime/comm/failure.h"

#include <dnnl.h>
#include <tuple>

namespace fsdpc {

bool parseElementType(const std::string &name, ElementType &type) {
  if (name == "f32")
    type = ElementType::f32;
  else if (name == "bf16")
    type = ElementType::bf16;
  else
    return false;
  return true;
}

bool GemmShape::operator<(const GemmShape &o) const {
  auto key = [](const GemmShape &s) {
    return std::make_tuple(s.m, s.n, s.k, s.rowA, s.columnA, s.rowB, s.columnB,
                           s.rowC, s.a, s.b, s.c, s.accumulate);
  };
  return key(*this) < key(o);
}

namespace {

dnnl_engine_t cpuEngine() {
  static dnnl_engine_t engine = [] {
    dnnl_engine_t result = nullptr;
    if (dnnl_engine_create(&result, dnnl_cpu, 0) != dnnl_success)
      fail("oneDNN has no CPU engine");
    return result;
  }();
  return engine;
}

void check(dnnl_status_t status, const char *what) {
  if (status != dnnl_success)
    fail(std::string("oneDNN: ") + what + " failed with status " +
         std::to_string(int(status)));
}

dnnl_data_type_t dataType(ElementType type) {
  return type == ElementType::f32 ? dnnl_f32 : dnnl_bf16;
}

dnnl_memory_desc_t describe(int64_t rows, int64_t columns, int64_t rowStride,
                            int64_t columnStride, ElementType type) {
  dnnl_memory_desc_t desc;
  dnnl_dims_t dims = {rows, columns}, strides = {rowStride, columnStride};
  check(
      dnnl_memory_desc_init_by_strides(&desc, 2, dims, dataType(type), strides),
      "describing a matrix");
  return desc;
}

// The memory objects of one thread's calls.
struct Operands {
  dnnl_stream_t stream = nullptr;
  dnnl_memory_t a = nullptr, b = nullptr, c = nullptr, scratch = nullptr;
};

class NativeGemm : public Gemm {
public:
  NativeGemm(const GemmShape &s, int threads, dnnl_primitive_desc_t desc)
      : a(describe(s.m, s.k, s.rowA, s.columnA, s.a)),
        b(describe(s.k, s.n, s.rowB, s.columnB, s.b)),
        c(describe(s.m, s.n, s.rowC, 1, s.c)), threads(threads), desc(desc),
        scratch(
            *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0)) {}

  ~NativeGemm() override {
    for (Operands &o : operands) {
      for (dnnl_memory_t memory : {o.a, o.b, o.c, o.scratch})
        dnnl_memory_destroy(memory);
      dnnl_stream_destroy(o.stream);
    }
    if (primitive)
      dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(desc);
  }

  static dnnl_primitive_desc_t find(const GemmShape &s) {
    dnnl_memory_desc_t a = describe(s.m, s.k, s.rowA, s.columnA, s.a),
                       b = describe(s.k, s.n, s.rowB, s.columnB, s.b),
                       c = describe(s.m, s.n, s.rowC, 1, s.c);
    dnnl_matmul_desc_t matmul;
    if (dnnl_matmul_desc_init(&matmul, &a, &b, nullptr, &c) != dnnl_success)
      return nullptr;
    dnnl_primitive_attr_t attributes;
    check(dnnl_primitive_attr_create(&attributes), "creating attributes");
    dnnl_primitive_attr_set_scratchpad_mode(attributes,
                                            dnnl_scratchpad_mode_user);
    dnnl_post_ops_t sum;
    check(dnnl_post_ops_create(&sum), "creating post-ops");
    if (s.accumulate) {
      dnnl_post_ops_append_sum(sum, 1);
      dnnl_primitive_attr_set_post_ops(attributes, sum);
    }
    dnnl_primitive_desc_t desc = nullptr;
    dnnl_primitive_desc_create(&desc, &matmul, attributes, cpuEngine(),
                               nullptr);
    dnnl_post_ops_destroy(sum);
    dnnl_primitive_attr_destroy(attributes);
    return desc;
  }

  size_t scratchBytes() const override {
    return dnnl_memory_desc_get_size(&scratch);
  }

  void prepare() override {
    if (primitive)
      return;
    check(dnnl_primitive_create(&primitive, desc), "creating a product");
    operands.resize(threads);
    for (Operands &o : operands) {
      check(
          dnnl_stream_create(&o.stream, cpuEngine(), dnnl_stream_default_flags),
          "creating a stream");
      auto make = [&](dnnl_memory_t *memory, const dnnl_memory_desc_t &of) {
        check(dnnl_memory_create(memory, &of, cpuEngine(), DNNL_MEMORY_NONE),
              "creating an operand");
      };
      make(&o.a, a);
      make(&o.b, b);
      make(&o.c, c);
      make(&o.scratch, scratch);
    }
  }

  void run(int thread, const void *pa, const void *pb, void *pc,
           void *work) override {
    Operands &o = operands[thread];
    dnnl_memory_set_data_handle(o.a, const_cast<void *>(pa));
    dnnl_memory_set_data_handle(o.b, const_cast<void *>(pb));
    dnnl_memory_set_data_handle(o.c, pc);
    dnnl_memory_set_data_handle(o.scratch, work);
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, o.a},
                                   {DNNL_ARG_WEIGHTS, o.b},
                                   {DNNL_ARG_DST, o.c},
                                   {DNNL_ARG_SCRATCHPAD, o.scratch}};
    check(dnnl_primitive_execute(primitive, o.stream, 4, arguments),
          "a product");
  }

private:
  dnnl_memory_desc_t a, b, c;
  int threads;
  dnnl_primitive_desc_t desc;
  dnnl_memory_desc_t scratch;
  dnnl_primitive_t primitive = nullptr;
  std::vector<Operands> operands;
};

// Copies a matrix into dense f32 rows of `columns`, or back.
void widenMatrix(const void *source, ElementType type, int64_t rows,
                 int64_t columns, int64_t rowStride, int64_t columnStride,
                 float *destination) {
  auto copy = [&](auto *from) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        destination[i * columns + j] =
            widen(from[i * rowStride + j * columnStride]);
  };
  if (type == ElementType::f32)
    copy(static_cast<const float *>(source));
  else
    copy(static_cast<const BFloat16 *>(source));
}

// Scratch: [the f32 product's own | A | B | C], A and B in the orientation they
// are stored in, C where it is not f32 already.
class WideningGemm : public Gemm {
public:
  WideningGemm(const GemmShape &s, std::shared_ptr<Gemm> inner)
      : shape(s), inner(std::move(inner)) {}

  // The f32 product on the dense copies.
  static GemmShape wide(const GemmShape &s) {
    GemmShape w = s;
    w.a = w.b = w.c = ElementType::f32;
    bool transposedA = s.columnA != 1, transposedB = s.columnB != 1;
    w.rowA = transposedA ? 1 : s.k;
    w.columnA = transposedA ? s.m : 1;
    w.rowB = transposedB ? 1 : s.n;
    w.columnB = transposedB ? s.k : 1;
    w.rowC = s.c == ElementType::f32 ? s.rowC : s.n;
    return w;
  }

  size_t scratchBytes() const override {
    return round(inner->scratchBytes()) + round(4 * shape.m * shape.k) +
           round(4 * shape.k * shape.n) +
           (shape.c == ElementType::f32 ? 0 : round(4 * shape.m * shape.n));
  }
  void prepare() override { inner->prepare(); }

  void run(int thread, const void *a, const void *b, void *c,
           void *scratch) override {
    const GemmShape &s = shape;
    char *free = static_cast<char *>(scratch) + round(inner->scratchBytes());
    float *wideA = reinterpret_cast<float *>(free);
    float *wideB = reinterpret_cast<float *>(free += round(4 * s.m * s.k));
    float *wideC = reinterpret_cast<float *>(free += round(4 * s.k * s.n));
    if (s.columnA == 1)
      widenMatrix(a, s.a, s.m, s.k, s.rowA, 1, wideA);
    else
      widenMatrix(a, s.a, s.k, s.m, s.columnA, s.rowA, wideA);
    if (s.columnB == 1)
      widenMatrix(b, s.b, s.k, s.n, s.rowB, 1, wideB);
    else
      widenMatrix(b, s.b, s.n, s.k, s.columnB, s.rowB, wideB);
    if (s.c == ElementType::f32)
      return inner->run(thread, wideA, wideB, c, scratch);
    BFloat16 *narrowC = static_cast<BFloat16 *>(c);
    if (s.accumulate)
      widenMatrix(c, s.c, s.m, s.n, s.rowC, 1, wideC);
    inner->run(thread, wideA, wideB, wideC, scratch);
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j)
        narrowC[i * s.rowC + j] = narrow<BFloat16>(wideC[i * s.n + j]);
  }

private:
  static size_t round(size_t bytes) { return (bytes + 63) / 64 * 64; }

  GemmShape shape;
  std::shared_ptr<Gemm> inner;
};

} // namespace

std::shared_ptr<Gemm> Gemm::make(const GemmShape &shape, int threads,
                                 std::string &error) {
  if (dnnl_primitive_desc_t desc = NativeGemm::find(shape))
    return std::make_shared<NativeGemm>(shape, threads, desc);
  GemmShape wide = WideningGemm::wide(shape);
  if (dnnl_primitive_desc_t desc = NativeGemm::find(wide))
    return std::make_shared<WideningGemm>(
        shape, std::make_shared<NativeGemm>(wide, threads, desc));
  error = "oneDNN has no matrix product of " + std::to_string(shape.m) + "x" +
          std::to_string(shape.k) + " and " + std::to_string(shape.k) + "x" +
          std::to_string(shape.n);
  return nullptr;
}

std::shared_ptr<Gemm> GemmCache::get(const GemmShape &shape,
                                     std::string &error) {
  std::shared_ptr<Gemm> &gemm = gemms[shape];
  if (!gemm)
    gemm = Gemm::make(shape, threads, error);
  return gemm;
}

} // namespace fsdpc

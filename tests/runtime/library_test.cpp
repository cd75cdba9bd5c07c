// The conformance suite for library calls. Matrix products, convolutions,
// pooling and attention of every device backend are compared with plain loops
// in f64, with limits that follow from the rounding of the type, and their bits
// must not depend on the number of threads.
#include "runtime/comm/float16.h"
#include "runtime/comm/reduce.h"
#include "tests/runtime/device_backends.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <sstream>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

// A tensor that is stored as f32 or in a 16-bit type, and read and written as
// doubles.
struct Tensor {
  Tensor(const std::string &dtype, int64_t elements)
      : type(wireType(dtype)), bytes(elements * wireBytes(type) + 64) {
    auto address = reinterpret_cast<uintptr_t>(bytes.data());
    data = reinterpret_cast<void *>((address + 63) / 64 * 64);
  }
  Tensor(const Tensor &) = delete;
  double operator[](int64_t i) const {
    float value;
    castToWire(at(i), type, WireType::f32, 1, &value);
    return value;
  }
  void set(int64_t i, float value) {
    castToWire(&value, WireType::f32, type, 1, at(i));
  }
  Tensor &fill(int seed) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < size(); ++i)
      set(i, float(int(random() % 2001) - 1000) / 1000);
    return *this;
  }
  char *at(int64_t i) const {
    return static_cast<char *>(data) + i * int64_t(wireBytes(type));
  }
  int64_t size() const {
    return int64_t((bytes.size() - 64) / wireBytes(type));
  }
  double tolerance() const {
    return type == WireType::f32    ? 1e-5
           : type == WireType::bf16 ? 1.0 / 128
                                    : 1.0 / 1024;
  }
  std::string image() const {
    return {static_cast<char *>(data), bytes.size() - 64};
  }

  WireType type;
  std::vector<char> bytes;
  void *data;
};

// Expects |got - expected| to be within the rounding of what was summed.
void expectClose(const Tensor &got, const std::vector<double> &expected,
                 double magnitude) {
  ASSERT_EQ(got.size(), int64_t(expected.size()));
  for (int64_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i],
                got.tolerance() * (std::abs(expected[i]) + 0.1 * magnitude))
        << "at " << i;
}

// An operand of a call: its host copy, and where the call finds its address.
struct Operand {
  Operand(Tensor &tensor)
      : host(tensor.data), bytes(tensor.bytes.size() - 64) {}
  Operand(std::vector<int32_t> &values)
      : host(values.data()), bytes(values.size() * sizeof(int32_t)) {}
  Operand(std::nullptr_t) {}
  void *host = nullptr;
  size_t bytes = 0;
};

class Libraries : public DeviceTest {
protected:
  // The types that the backend's libraries compute in. f16 is the host's.
  static bool onHost() { return GetParam().name == std::string("host"); }
  static std::vector<std::string> dtypes() {
    std::vector<std::string> all = {"f32", "bf16"};
    if (onHost())
      all.push_back("f16");
    return all;
  }

  using Call = std::function<void(Device &, const std::vector<void *> &)>;

  // Runs `call` on this backend, and on one thread to compare the bits.
  // Operands are copied to device memory and back.
  void run(const Manifest &manifest, const std::vector<Operand> &operands,
           Tensor &result, const Tensor &initial, const Call &call) {
    auto once = [&](Device &device) {
      memcpy(result.data, initial.data, initial.bytes.size() - 64);
      std::vector<void *> places;
      for (const Operand &operand : operands) {
        places.push_back(operand.bytes ? device.allocate(operand.bytes)
                                       : nullptr);
        if (operand.bytes)
          device.upload(places.back(), operand.host, operand.bytes);
      }
      call(device, places);
      device.synchronize();
      for (size_t i = 0; i < operands.size(); ++i)
        if (operands[i].bytes) {
          device.download(operands[i].host, places[i], operands[i].bytes);
          device.release(places[i], operands[i].bytes);
        }
      return result.image();
    };
    auto single = GetParam().make(manifest, 1);
    ASSERT_TRUE(single) << single.error().message;
    std::string expected = once(**single);
    single->reset();
    auto device = make(manifest);
    EXPECT_TRUE(once(*device) == expected) << "bits depend on threads";
    EXPECT_GE(scratchpadBytes(manifest, 1, GetParam().threads), 0);
  }

  void checkMatmul(const MatmulPlan &p) {
    SCOPED_TRACE(::testing::Message()
                 << p.m << "x" << p.n << "x" << p.k
                 << (p.transposeA ? " T" : "") << (p.transposeB ? " ,T " : " ")
                 << p.dtypeA << p.dtypeB << p.dtypeC
                 << (p.accumulate ? " +=" : " =") << (p.bias ? " bias" : ""));
    auto extent = [&](int64_t rows, int64_t ld, const std::vector<int64_t> &s) {
      int64_t last = rows * ld;
      for (size_t i = 0; i < s.size(); ++i)
        last += (p.batch[i] - 1) * s[i];
      return last;
    };
    Tensor a(p.dtypeA, extent(p.transposeA ? p.k : p.m, p.lda, p.strideA));
    Tensor b(p.dtypeB, extent(p.transposeB ? p.n : p.k, p.ldb, p.strideB));
    Tensor c(p.dtypeC, extent(p.m, p.ldc, p.strideC));
    a.fill(1);
    b.fill(2);
    Tensor initial(p.dtypeC, c.size());
    initial.fill(3);
    Tensor bias(p.dtypeC, p.n);
    bias.fill(4);
    Manifest manifest;
    manifest.matmuls.push_back(p);
    Operand row = p.bias ? Operand(bias) : nullptr;
    run(manifest, {a, b, row, c}, c, initial,
        [](Device &d, auto &at) { d.matmul(0, at[0], at[1], at[2], at[3]); });

    // Elements between rows must keep their values.
    std::vector<double> expected(c.size());
    for (int64_t i = 0; i < c.size(); ++i)
      expected[i] = initial[i];
    int64_t batches = 1;
    for (int64_t e : p.batch)
      batches *= e;
    for (int64_t entry = 0; entry < batches; ++entry) {
      int64_t oa = 0, ob = 0, oc = 0, rest = entry;
      for (size_t i = p.batch.size(); i-- > 0; rest /= p.batch[i]) {
        oa += rest % p.batch[i] * p.strideA[i];
        ob += rest % p.batch[i] * p.strideB[i];
        oc += rest % p.batch[i] * p.strideC[i];
      }
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) {
          double sum = p.bias ? bias[j] : 0;
          for (int64_t l = 0; l < p.k; ++l)
            sum += a[oa + (p.transposeA ? l * p.lda + i : i * p.lda + l)] *
                   b[ob + (p.transposeB ? j * p.ldb + l : l * p.ldb + j)];
          double &cell = expected[oc + i * p.ldc + j];
          cell = p.accumulate ? cell + sum : sum;
        }
    }
    expectClose(c, expected, std::sqrt(double(p.k)));
  }

  void checkConvolution(ConvolutionPlan p);
  void checkPooling(PoolingPlan p, bool gradient);
  void checkAttention(AttentionPlan p);
};

MatmulPlan product(int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  MatmulPlan p;
  p.m = m, p.n = n, p.k = k, p.transposeA = ta, p.transposeB = tb;
  p.lda = ta ? m : k, p.ldb = tb ? k : n, p.ldc = n;
  p.dtypeA = p.dtypeB = p.dtypeC = "f32";
  return p;
}

// Tails in every dimension, both orders of both operands, cut and uncut, and
// all mixes of types.
TEST_P(Libraries, matmul) {
  const int64_t shapes[][3] = {{1, 1, 1},     {3, 5, 7},     {1, 300, 64},
                               {33, 17, 129}, {700, 65, 48}, {65, 1100, 48}};
  for (auto &[m, n, k] : shapes)
    for (int form = 0; form < 8; ++form)
      for (const char *types :
           {"f32 f32 f32", "bf16 bf16 bf16", "bf16 bf16 f32", "f32 bf16 f32",
            "f16 f16 f16", "f16 f16 f32", "f32 f16 f32"}) {
        if (strstr(types, " f16") && !onHost())
          continue;
        MatmulPlan p = product(m, n, k, form & 1, form & 2);
        p.accumulate = form & 4;
        std::string text = types;
        p.dtypeA = text.substr(0, text.find(' '));
        text = text.substr(text.find(' ') + 1);
        p.dtypeB = text.substr(0, text.find(' '));
        p.dtypeC = text.substr(text.find(' ') + 1);
        checkMatmul(p);
      }
}

// A bias. It is added by the library; or by a separate pass if the library
// refuses (the emulation does for results wider than operands) or has no such
// product. The host has no biases.
TEST_P(Libraries, matmulWithBias) {
  for (const char *types :
       {"f32 f32 f32", "bf16 bf16 bf16", "bf16 bf16 f32", "f32 bf16 f32"}) {
    MatmulPlan p = product(33, 47, 129, false, true);
    p.bias = true;
    std::istringstream(types) >> p.dtypeA >> p.dtypeB >> p.dtypeC;
    p.batch = {2};
    p.strideA = {33 * 129}, p.strideB = {0}, p.strideC = {33 * 47};
    if (!onHost()) {
      checkMatmul(p);
      continue;
    }
    Manifest manifest;
    manifest.matmuls.push_back(p);
    auto device = GetParam().make(manifest, 1);
    EXPECT_FALSE(device);
    EXPECT_EQ(device.error().message,
              "matrix products with a bias are supported on GPUs only");
  }
}

// Products of attention: two batch axes, with the rows of all heads
// interleaved, and one operand that groups of heads share.
TEST_P(Libraries, matmulBatchesAndBroadcasts) {
  for (bool transposed : {false, true})
    for (const std::string &dtype : dtypes()) {
      MatmulPlan p = product(20, transposed ? 20 : 16, 16, false, transposed);
      p.dtypeA = p.dtypeB = p.dtypeC = dtype;
      p.batch = {3, 4};
      p.lda = 4 * 16;
      p.strideA = {20 * 4 * 16, 16};
      p.strideB = {16 * 20, 0}; // one for four heads
      p.strideC = {4 * 20 * p.ldc, 20 * p.ldc};
      checkMatmul(p);
    }
}

void Libraries::checkConvolution(ConvolutionPlan p) {
  auto outExtent = [&](int axis, int64_t in, int64_t kernel) {
    return (in + p.padsBegin[axis] + p.padsEnd[axis] -
            p.dilations[axis] * (kernel - 1) - 1) /
               p.strides[axis] +
           1;
  };
  p.outHeight = outExtent(0, p.height, p.kernelHeight);
  p.outWidth = outExtent(1, p.width, p.kernelWidth);
  int64_t gc = p.channels / p.groups, gf = p.filters / p.groups;
  Tensor x(p.dtype, p.batch * p.channels * p.height * p.width);
  Tensor w(p.dtype, p.filters * gc * p.kernelHeight * p.kernelWidth);
  Tensor y(p.dtype, p.batch * p.filters * p.outHeight * p.outWidth);
  for (const char *kind : {"forward", "input", "weight"}) {
    SCOPED_TRACE(kind);
    p.kind = kind;
    Tensor *operands[] = {&x, &w, &y};
    if (p.kind == "input")
      std::swap(operands[0], operands[2]); // dy, w, dx
    if (p.kind == "weight")
      std::swap(operands[1], operands[2]); // x, dy, dw
    operands[0]->fill(4);
    operands[1]->fill(5);
    Tensor &result = *operands[2], initial(p.dtype, result.size());
    initial.fill(6); // must be overwritten
    Manifest manifest;
    manifest.convolutions.push_back(p);
    run(manifest, {*operands[0], *operands[1], result}, result, initial,
        [](Device &d, auto &at) { d.convolution(0, at[0], at[1], at[2]); });
    std::vector<double> expected(result.size(), 0);
    for (int64_t n = 0; n < p.batch; ++n)
      for (int64_t f = 0; f < p.filters; ++f)
        for (int64_t i = 0; i < p.outHeight; ++i)
          for (int64_t j = 0; j < p.outWidth; ++j)
            for (int64_t c = 0; c < gc; ++c)
              for (int64_t ki = 0; ki < p.kernelHeight; ++ki)
                for (int64_t kj = 0; kj < p.kernelWidth; ++kj) {
                  int64_t r =
                      i * p.strides[0] + ki * p.dilations[0] - p.padsBegin[0];
                  int64_t s =
                      j * p.strides[1] + kj * p.dilations[1] - p.padsBegin[1];
                  if (r < 0 || r >= p.height || s < 0 || s >= p.width)
                    continue;
                  int64_t channel = f / gf * gc + c;
                  int64_t ix =
                      ((n * p.channels + channel) * p.height + r) * p.width + s;
                  int64_t iw =
                      ((f * gc + c) * p.kernelHeight + ki) * p.kernelWidth + kj;
                  int64_t iy =
                      ((n * p.filters + f) * p.outHeight + i) * p.outWidth + j;
                  if (p.kind == "forward")
                    expected[iy] += x[ix] * w[iw];
                  else if (p.kind == "input")
                    expected[ix] += y[iy] * w[iw];
                  else
                    expected[iw] += x[ix] * y[iy];
                }
    expectClose(result, expected, std::sqrt(double(gc * p.kernelHeight * 9)));
  }
}

// The shapes of residual nets and vision transformers, with groups, dilations
// and uneven padding.
TEST_P(Libraries, convolution) {
  for (const std::string &dtype : dtypes()) {
    ConvolutionPlan p;
    p.dtype = dtype;
    p.batch = 3, p.channels = 4, p.height = 9, p.width = 11, p.filters = 6;
    p.kernelHeight = p.kernelWidth = 3;
    p.strides = p.dilations = {1, 1};
    p.padsBegin = p.padsEnd = {1, 1};
    checkConvolution(p);
    p.strides = {2, 2}; // downsampling in a residual net
    checkConvolution(p);
    p.groups = 2, p.dilations = {1, 2}, p.padsEnd = {0, 2};
    checkConvolution(p);
    p.groups = 1, p.kernelHeight = p.kernelWidth = 1; // pointwise
    p.strides = p.dilations = {1, 1}, p.padsBegin = p.padsEnd = {0, 0};
    checkConvolution(p);
    p.strides = {2, 2}; // its shortcut
    checkConvolution(p);
    p.kernelHeight = 4, p.kernelWidth = 4, p.strides = {4, 4}; // patches
    p.batch = 1, p.height = 40, p.width = 36, p.channels = 3, p.filters = 20;
    checkConvolution(p);
  }
}

// The reference visits every cell of every window.
void Libraries::checkPooling(PoolingPlan p, bool gradient) {
  int64_t planes = p.batch * p.channels, plane = p.height * p.width;
  int64_t outPlane = p.outHeight * p.outWidth;
  Tensor x(p.dtype, planes * plane), y(p.dtype, planes * outPlane);
  std::vector<int32_t> workspace(planes * outPlane, -1);
  x.fill(7);
  std::vector<double> expectedY(y.size()), expectedX(x.size(), 0);
  std::vector<int32_t> expectedWorkspace(workspace.size(), -1);
  Tensor dy(p.dtype, y.size());
  dy.fill(8);
  bool maximum = p.kind == "max";
  for (int64_t q = 0; q < planes; ++q)
    for (int64_t i = 0; i < p.outHeight; ++i)
      for (int64_t j = 0; j < p.outWidth; ++j) {
        int64_t out = (q * p.outHeight + i) * p.outWidth + j, best = -1;
        double sum = 0, count = 0, padded = 0;
        std::vector<int64_t> cells;
        for (int64_t ki = 0; ki < p.kernel[0]; ++ki)
          for (int64_t kj = 0; kj < p.kernel[1]; ++kj) {
            int64_t r = i * p.strides[0] + ki - p.padsBegin[0];
            int64_t s = j * p.strides[1] + kj - p.padsBegin[1];
            padded += r < p.height + p.padsEnd[0] && s < p.width + p.padsEnd[1];
            if (r < 0 || r >= p.height || s < 0 || s >= p.width)
              continue;
            int64_t in = q * plane + r * p.width + s;
            cells.push_back(in);
            sum += x[in];
            ++count;
            if (best < 0 || x[in] > x[best]) {
              best = in;
              expectedWorkspace[out] = int32_t(ki * p.kernel[1] + kj);
            }
          }
        double divisor = p.countPadding ? padded : count;
        expectedY[out] = maximum ? x[best] : sum / divisor;
        if (maximum)
          expectedX[best] += dy[out];
        else
          for (int64_t in : cells)
            expectedX[in] += dy[out] / divisor;
      }
  Manifest manifest;
  manifest.poolings.push_back(p);
  Tensor empty(p.dtype, y.size());
  auto pool = [](Device &d, auto &at) { d.pooling(0, at[0], at[1], at[2]); };
  Operand indices = maximum ? Operand(workspace) : Operand(nullptr);
  run(manifest, {x, y, indices}, y, empty, pool);
  expectClose(y, expectedY, 1);
  if (maximum) {
    EXPECT_EQ(workspace, expectedWorkspace);
  }
  if (!gradient)
    return;
  manifest.poolings[0].kind += "_grad";
  Tensor dx(p.dtype, x.size()), initial(p.dtype, x.size());
  initial.fill(9);
  run(manifest, {dy, dx, indices}, dx, initial, pool);
  expectClose(dx, expectedX, 1);
}

// Overlapping windows, one window over the whole plane, and gaps between
// windows.
TEST_P(Libraries, pooling) {
  for (const std::string &dtype : dtypes())
    for (const char *kind : {"max", "average"}) {
      PoolingPlan p;
      p.kind = kind, p.dtype = dtype;
      p.batch = 2, p.channels = 3, p.height = 9, p.width = 12;
      p.kernel = {3, 3}, p.strides = {2, 2};
      p.padsBegin = {1, 1}, p.padsEnd = {1, 1};
      p.outHeight = 5, p.outWidth = 6;
      checkPooling(p, true);
      p.countPadding = true;
      checkPooling(p, true);
      p.kernel = {9, 12}, p.strides = {1, 1}; // the whole plane
      p.padsBegin = p.padsEnd = {0, 0};
      p.outHeight = p.outWidth = 1;
      checkPooling(p, true);
      p.kernel = {2, 3}, p.strides = {3, 4}; // gaps between windows
      p.outHeight = 3, p.outWidth = 3;
      checkPooling(p, true);
    }
}

// Stands for the row kernel that the compiler generates for this plan.
AttentionPlan rowsPlan;

template <typename T>
void attentionRows(int64_t begin, int64_t end, void *const *buffers) {
  bool backward = rowsPlan.backward;
  auto *numbers = static_cast<int64_t *>(buffers[backward ? 8 : 4]);
  for (int64_t row = begin; row < end; ++row) {
    auto at = [&](int buffer, auto *like, int64_t stride) {
      return static_cast<decltype(like)>(buffers[buffer]) + row * stride;
    };
    float *scores = at(0, static_cast<float *>(nullptr), numbers[1]);
    T *weights = at(1, static_cast<T *>(nullptr), numbers[1]);
    float &lse = *at(2, static_cast<float *>(nullptr), 1);
    int64_t keys =
        rowsPlan.causal ? std::min(numbers[0], numbers[2] + row) : numbers[0];
    if (!backward) {
      double sum = 0;
      for (int64_t s = 0; s < keys; ++s)
        sum += std::exp(rowsPlan.scale * scores[s]);
      lse = float(std::log(sum));
    }
    for (int64_t s = 0; s < numbers[0]; ++s)
      scores[s] =
          s < keys ? float(std::exp(rowsPlan.scale * scores[s] - lse)) : 0;
    if (backward) {
      float *dweights = at(4, static_cast<float *>(nullptr), numbers[1]);
      T *dscores = at(5, static_cast<T *>(nullptr), numbers[1]);
      const T *grad = at(6, static_cast<T *>(nullptr), numbers[4]);
      const T *output = at(7, static_cast<T *>(nullptr), numbers[5]);
      float dot = 0;
      for (int64_t j = 0; j < rowsPlan.valueWidth; ++j)
        dot += widen(grad[j]) * widen(output[j]);
      for (int64_t s = 0; s < numbers[0]; ++s) {
        float centred = s < keys ? dweights[s] - dot : 0;
        dscores[s] = narrow<T>(scores[s] * centred * float(rowsPlan.scale));
      }
    }
    for (int64_t s = 0; s < numbers[0]; ++s)
      weights[s] = narrow<T>(scores[s]);
  }
}

// Forward and backward, with the heads of a row side by side.
void Libraries::checkAttention(AttentionPlan p) {
  SCOPED_TRACE(::testing::Message()
               << p.queries << " queries " << p.keys << " keys " << p.dtype);
  auto strides = [](int64_t heads, int64_t rows, int64_t width) {
    return std::vector<int64_t>{rows * heads * width, width, heads * width};
  };
  p.strideQuery = p.strideDQuery = strides(p.heads, p.queries, p.width);
  p.strideKey = p.strideDKey = strides(p.groups, p.keys, p.width);
  p.strideValue = p.strideDValue = strides(p.groups, p.keys, p.valueWidth);
  p.strideOutput = p.strideGrad = strides(p.heads, p.queries, p.valueWidth);
  auto make = [&](const std::vector<int64_t> &s) {
    return std::make_unique<Tensor>(p.dtype, p.batch * s[0]);
  };
  auto q = make(p.strideQuery), k = make(p.strideKey), v = make(p.strideValue),
       o = make(p.strideOutput), g = make(p.strideGrad);
  auto dq = make(p.strideQuery), dk = make(p.strideKey),
       dv = make(p.strideValue);
  int seed = 1;
  for (auto *tensor : {&q, &k, &v, &o, &g, &dq, &dk, &dv})
    (*tensor)->fill(++seed);
  Tensor lse("f32", p.batch * p.heads * p.queries);
  fsdpc_kernel rows = {};
  rows.host = p.dtype == "f32"    ? attentionRows<float>
              : p.dtype == "bf16" ? attentionRows<BFloat16>
                                  : attentionRows<Float16>;
  auto call = [&](bool backward, Tensor &result) {
    p.backward = rowsPlan.backward = backward;
    Manifest manifest;
    manifest.attentions.push_back(rowsPlan = p);
    Tensor initial(p.dtype, result.size());
    initial.fill(1); // must be overwritten
    std::vector<Operand> operands = {*q, *k, *v, nullptr, *o, lse};
    if (backward)
      operands = {*g, *q, *k, *v, *o, lse, nullptr, *dq, *dk, *dv};
    run(manifest, operands, result, initial, [&](Device &d, auto &at) {
      if (backward)
        d.attentionGrad(0, &rows, at[0], at[1], at[2], at[3], at[4], at[5],
                        at[6], at[7], at[8], at[9]);
      else
        d.attention(0, &rows, at[0], at[1], at[2], at[3], at[4], at[5]);
    });
  };

  std::vector<double> expected[4];
  Tensor *results[] = {o.get(), dq.get(), dk.get(), dv.get()};
  for (int i = 0; i < 4; ++i)
    expected[i].resize(results[i]->size());
  for (bool backward : {false, true}) {
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.heads; ++h)
        for (int64_t t = 0; t < p.queries; ++t) {
          auto place = [&](const std::vector<int64_t> &s, int64_t head,
                           int64_t row) {
            return b * s[0] + head * s[1] + row * s[2];
          };
          int64_t group = h / (p.heads / p.groups);
          int64_t qi = place(p.strideQuery, h, t);
          int64_t oi = place(p.strideOutput, h, t);
          int64_t keys = p.causal ? t + 1 + p.keys - p.queries : p.keys;
          std::vector<double> weight(keys, 0);
          double sum = 0, dot = 0;
          for (int64_t s = 0; s < keys; ++s) {
            for (int64_t j = 0; j < p.width; ++j)
              weight[s] +=
                  (*q)[qi + j] * (*k)[place(p.strideKey, group, s) + j];
            sum += weight[s] = std::exp(p.scale * weight[s]);
          }
          for (int64_t j = 0; j < p.valueWidth; ++j)
            dot += (*g)[oi + j] * (*o)[oi + j];
          for (int64_t s = 0; s < keys; ++s) {
            double w = weight[s] / sum, dw = -dot;
            int64_t ki = place(p.strideKey, group, s);
            int64_t vi = place(p.strideValue, group, s);
            for (int64_t j = 0; j < p.valueWidth; ++j) {
              dw += (*g)[oi + j] * (*v)[vi + j];
              if (backward)
                expected[3][vi + j] += w * (*g)[oi + j];
              else
                expected[0][oi + j] += w * (*v)[vi + j];
            }
            for (int64_t j = 0; backward && j < p.width; ++j) {
              expected[1][qi + j] += w * dw * p.scale * (*k)[ki + j];
              expected[2][ki + j] += w * dw * p.scale * (*q)[qi + j];
            }
          }
        }
    for (int i = backward ? 1 : 0; i < (backward ? 4 : 1); ++i) {
      call(backward, *results[i]);
      expectClose(*results[i], expected[i], 5);
    }
  }
}

// One block of queries and several, with tails, and heads that share a key
// head.
TEST_P(Libraries, attention) {
  for (const std::string &dtype : dtypes())
    for (bool causal : {false, true})
      for (const char *library : {"cudnn", "products"}) {
        AttentionPlan p;
        p.dtype = dtype, p.causal = causal, p.scale = 0.5;
        p.library = library; // for GPU backends
        p.batch = 2, p.heads = 6, p.groups = 3, p.width = 8, p.valueWidth = 5;
        p.queries = 7, p.keys = 7;
        checkAttention(p);
        p.queries = 131, p.keys = 140;
        checkAttention(p);
      }
}

// A plan that cannot run is refused with a reason.
TEST_P(Libraries, refuseUnknownTypes) {
  Manifest manifest;
  manifest.matmuls.push_back(product(2, 2, 2, false, false));
  manifest.matmuls[0].dtypeB = "f8";
  auto device = GetParam().make(manifest, GetParam().threads);
  EXPECT_FALSE(device);
  const std::string &message = device.error().message;
  EXPECT_NE(message.find("'f8'"), std::string::npos) << message;
}

// So is one with an empty dimension or too few strides, before anything is
// divided by an extent or an index passes the end of a list.
TEST_P(Libraries, refuseImpossibleShapes) {
  auto refused = [&](const Manifest &manifest, const char *message) {
    auto device = GetParam().make(manifest, GetParam().threads);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().message, message);
  };
  for (int64_t MatmulPlan::*extent :
       {&MatmulPlan::m, &MatmulPlan::n, &MatmulPlan::k}) {
    Manifest manifest;
    manifest.matmuls.push_back(product(2, 2, 2, false, false));
    manifest.matmuls[0].*extent = 0;
    refused(manifest, "matrix product with an empty dimension");
  }
  Manifest manifest;
  manifest.matmuls.push_back(product(2, 2, 2, false, false));
  manifest.matmuls[0].batch = {3};
  refused(manifest,
          "matrix product whose 'strideA' has 0 entries instead of 1");
  ConvolutionPlan p;
  p.kind = "forward", p.dtype = "f32";
  p.batch = p.channels = p.filters = p.kernelHeight = p.kernelWidth = 1;
  p.height = p.width = p.outHeight = p.outWidth = 4;
  p.strides = p.dilations = {1, 1}, p.padsBegin = p.padsEnd = {0, 0};
  for (int64_t ConvolutionPlan::*extent :
       {&ConvolutionPlan::batch, &ConvolutionPlan::channels,
        &ConvolutionPlan::outWidth, &ConvolutionPlan::kernelHeight}) {
    manifest = {};
    manifest.convolutions.push_back(p);
    manifest.convolutions[0].*extent = 0;
    refused(manifest, "convolution with an empty dimension");
  }
  manifest = {};
  manifest.convolutions.push_back(p);
  manifest.convolutions[0].dilations = {1};
  refused(manifest, "convolution whose 'dilations' has 1 entries instead of 2");
}

INSTANTIATE_TEST_SUITE_P(Backends, Libraries, ::testing::ValuesIn(backends()));

} // namespace

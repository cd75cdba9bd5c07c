// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The emulated libraries compute what their plans say, compared with the
// definitions in f64, and refuse what the real ones refuse. Tests of
// runtime/cuda rely on both.
#include "runtime/emulation/attention.h"
#include "runtime/emulation/convolution.h"
#include "runtime/emulation/values.h"
#include "tests/runtime/cuda/emulation/emulation_test.h"

#include <cmath>
#include <random>

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::runtime::emulation;

namespace {

std::mt19937 random_(3);

float someValue() {
  return std::uniform_real_distribution<float>(-1, 1)(random_);
}

// A tensor in host memory, whose type is given by name.
struct Tensor {
  Tensor(std::string dtype, int64_t count)
      : dtype(std::move(dtype)), bytes(count * dtypeBytes(this->dtype)),
        numbers(count) {
    for (int64_t i = 0; i < count && this->dtype != "i1"; ++i)
      set(i, someValue());
  }
  double get(int64_t i) const { return numbers[i]; }
  void set(int64_t i, float value) {
    if (dtype == "f64")
      reinterpret_cast<double *>(bytes.data())[i] = value;
    else
      storeValue(value, bytes.data(), dtype, i);
    numbers[i] = numberAt(i);
  }
  // Reads the numbers again after the bytes have changed.
  void refresh() {
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = numberAt(int64_t(i));
  }

  std::string dtype;
  std::vector<char> bytes;

private:
  double numberAt(int64_t i) const {
    return dtype == "f64" ? reinterpret_cast<const double *>(bytes.data())[i]
                          : loadValue(bytes.data(), dtype, i);
  }
  std::vector<double> numbers;
};

class Libraries : public EmulationTest {
protected:
  // Returns a copy of the tensor in device memory.
  void *onDevice(const Tensor &tensor) {
    void *memory = nullptr;
    EXPECT_CUDA(cuda.allocateDevice(memory, tensor.bytes.size()));
    memcpy(memory, tensor.bytes.data(), tensor.bytes.size());
    return memory;
  }
  void fetch(Tensor &tensor, const void *memory) {
    ASSERT_CUDA(cuda.synchronizeStream(one));
    memcpy(tensor.bytes.data(), memory, tensor.bytes.size());
    tensor.refresh();
  }
  void *workspaceFor(const CudaChoice &choice) {
    void *memory = nullptr;
    EXPECT_CUDA(cuda.allocateDevice(memory, choice.workspaceBytes));
    return memory;
  }

  DeviceAccess access;
  static constexpr size_t cap = size_t(32) << 20;
  CudaStream one = stream();
};

// Every combination of types, transpositions, accumulation and bias, with gaps
// between rows, which must keep their values.
TEST_F(Libraries, multiply) {
  struct Types {
    const char *in, *out;
    double tolerance;
  };
  for (Types types : {Types{"f32", "f32", 5e-5}, Types{"bf16", "f32", 5e-5},
                      Types{"bf16", "bf16", 1e-2}, Types{"f16", "f16", 2e-3},
                      Types{"f64", "f64", 1e-14}})
    for (int flags = 0; flags < 16; ++flags)
      for (int64_t k : {1, 33, 530}) {
        CudaGemmShape s;
        s.m = 37;
        s.n = 45;
        s.k = k;
        s.transposeA = flags & 1;
        s.transposeB = flags & 2;
        s.beta = flags & 4 ? 1 : 0;
        s.bias = flags & 8 && types.in == std::string(types.out);
        s.lda = (s.transposeA ? s.m : k) + 3;
        s.ldb = (s.transposeB ? k : s.n) + 1;
        s.ldc = s.n + 2;
        s.count = 2;
        int64_t rowsA = s.transposeA ? k : s.m, rowsB = s.transposeB ? s.n : k;
        s.strideA = rowsA * s.lda;
        s.strideC = s.m * s.ldc; // both share B
        s.dtypeA = s.dtypeB = types.in;
        s.dtypeC = types.out;
        Tensor a(types.in, 2 * s.strideA), b(types.in, rowsB * s.ldb),
            c(types.out, 2 * s.strideC), bias(types.out, s.n), result = c;
        void *to = onDevice(c);
        CudaGemm plan = nullptr;
        CudaChoice choice;
        ASSERT_CUDA(cuda.planGemm(s, cap, plan, choice));
        ASSERT_CUDA(cuda.gemm(
            plan,
            {onDevice(a), onDevice(b), to, s.bias ? onDevice(bias) : nullptr},
            workspaceFor(choice), one));
        fetch(result, to);
        for (int64_t e = 0; e < 2; ++e)
          for (int64_t i = 0; i < s.m; ++i)
            for (int64_t j = 0; j < s.ldc; ++j) {
              int64_t at = e * s.strideC + i * s.ldc + j;
              double sum = s.beta || j >= s.n ? c.get(at) : 0;
              if (s.bias && j < s.n)
                sum += bias.get(j);
              for (int64_t p = 0; p < k && j < s.n; ++p)
                sum += a.get(e * s.strideA +
                             (s.transposeA ? p * s.lda + i : i * s.lda + p)) *
                       b.get(s.transposeB ? j * s.ldb + p : p * s.ldb + j);
              ASSERT_NEAR(result.get(at), sum,
                          types.tolerance * (1 + std::abs(sum)))
                  << types.in << " " << flags << " k " << k << " at " << at;
            }
        ASSERT_CUDA(cuda.destroyGemm(plan));
      }
}

ConvolutionPlan somePlan(const std::string &dtype) {
  ConvolutionPlan p;
  p.dtype = dtype;
  p.batch = 2;
  p.channels = 4;
  p.height = 7;
  p.width = 6;
  p.filters = 6;
  p.kernelHeight = 3;
  p.kernelWidth = 2;
  p.groups = 2;
  p.strides = {2, 1};
  p.padsBegin = {1, 0};
  p.padsEnd = {1, 1};
  p.dilations = {1, 2};
  p.outHeight = 4;
  p.outWidth = 5;
  return p;
}

// Checks y, dx and dw together, from the definition.
void expectConvolution(const ConvolutionPlan &p, const Tensor &x,
                       const Tensor &w, const Tensor &dy,
                       std::vector<double> &y, std::vector<double> &dx,
                       std::vector<double> &dw) {
  int64_t channels = p.channels / p.groups, filters = p.filters / p.groups;
  for (int64_t n = 0; n < p.batch; ++n)
    for (int64_t f = 0; f < p.filters; ++f)
      for (int64_t i = 0; i < p.outHeight; ++i)
        for (int64_t j = 0; j < p.outWidth; ++j)
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t ki = 0; ki < p.kernelHeight; ++ki)
              for (int64_t kj = 0; kj < p.kernelWidth; ++kj) {
                int64_t row =
                    i * p.strides[0] + ki * p.dilations[0] - p.padsBegin[0];
                int64_t column =
                    j * p.strides[1] + kj * p.dilations[1] - p.padsBegin[1];
                if (row < 0 || row >= p.height || column < 0 ||
                    column >= p.width)
                  continue;
                int64_t channel = f / filters * channels + c;
                int64_t from =
                    ((n * p.channels + channel) * p.height + row) * p.width +
                    column;
                int64_t by =
                    ((f * channels + c) * p.kernelHeight + ki) * p.kernelWidth +
                    kj;
                int64_t to =
                    ((n * p.filters + f) * p.outHeight + i) * p.outWidth + j;
                y[to] += x.get(from) * w.get(by);
                dx[from] += dy.get(to) * w.get(by);
                dw[by] += dy.get(to) * x.get(from);
              }
}

TEST_F(Libraries, convolve) {
  for (const char *dtype : {"f32", "bf16", "f16"}) {
    ConvolutionPlan p = somePlan(dtype);
    Tensor x(dtype, 2 * 4 * 7 * 6), w(dtype, 6 * 2 * 3 * 2),
        dy(dtype, 2 * 6 * 4 * 5);
    std::vector<double> y(2 * 6 * 4 * 5), dx(2 * 4 * 7 * 6), dw(6 * 2 * 3 * 2);
    expectConvolution(p, x, w, dy, y, dx, dw);
    auto check = [&](const char *kind, const Tensor &a, const Tensor &b,
                     const std::vector<double> &expected) {
      p.kind = kind;
      Tensor result(dtype, int64_t(expected.size()));
      void *to = onDevice(result);
      CudaConvolution plan = nullptr;
      CudaChoice choice;
      ASSERT_CUDA(cuda.planConvolution(p, cap, true, plan, choice));
      ASSERT_CUDA(cuda.convolution(plan, onDevice(a), onDevice(b), to,
                                   workspaceFor(choice), one));
      fetch(result, to);
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(result.get(int64_t(i)), expected[i],
                    (p.dtype == "f32" ? 1e-5 : 2e-2) *
                        (1 + std::abs(expected[i])))
            << kind << " " << dtype << " at " << i;
      ASSERT_CUDA(cuda.destroyConvolution(plan));
    };
    check("forward", x, w, y);
    check("input", dy, w, dx);
    check("weight", x, dy, dw);
  }
}

// Two query heads share a key head. Operands lie as batch × row × head.
AttentionPlan attentionPlan(const std::string &dtype, bool causal,
                            int64_t queries, int64_t keys) {
  AttentionPlan p;
  p.batch = 2;
  p.heads = 4;
  p.groups = 2;
  p.queries = queries;
  p.keys = keys;
  p.width = 8;
  p.valueWidth = 16;
  p.scale = 0.7;
  p.causal = causal;
  p.dtype = dtype;
  p.strideQuery = {queries * 32, 8, 32};
  p.strideKey = {keys * 16, 8, 16};
  p.strideValue = {keys * 32, 16, 32};
  p.strideOutput = {queries * 64, 16, 64};
  return p;
}

struct AttentionOperands {
  explicit AttentionOperands(const AttentionPlan &p)
      : query(p.dtype, p.batch * p.strideQuery[0]),
        key(p.dtype, p.batch * p.strideKey[0]),
        value(p.dtype, p.batch * p.strideValue[0]),
        mask(p.dtypeMask.empty() ? "f32" : p.dtypeMask, p.queries * p.keys),
        output(p.dtype, p.batch * p.strideOutput[0]),
        lse("f32", p.batch * p.heads * p.queries) {}
  // Returns Σ output · grad in f64, from the definition.
  double total(const AttentionPlan &p, const Tensor &grad) const;
  void forward(const AttentionPlan &p) {
    const void *operands[] = {query.bytes.data(),  key.bytes.data(),
                              value.bytes.data(),  mask.bytes.data(),
                              output.bytes.data(), lse.bytes.data()};
    attend(p, operands);
    output.refresh();
  }
  Tensor query, key, value, mask, output, lse;
};

double AttentionOperands::total(const AttentionPlan &p,
                                const Tensor &grad) const {
  double total = 0;
  std::vector<double> scores(p.keys);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t i = 0; i < p.queries; ++i) {
        int64_t g = h / (p.heads / p.groups);
        double sum = 0;
        for (int64_t j = 0; j < p.keys; ++j) {
          double score = 0;
          for (int64_t d = 0; d < p.width; ++d)
            score += query.get(b * p.strideQuery[0] + h * p.strideQuery[1] +
                               i * p.strideQuery[2] + d) *
                     key.get(b * p.strideKey[0] + g * p.strideKey[1] +
                             j * p.strideKey[2] + d);
          score *= p.scale;
          if (p.dtypeMask == "f32")
            score += mask.get(i * p.keys + j);
          bool seen = !p.causal || j <= i + p.keys - p.queries;
          if (p.dtypeMask == "i1")
            seen &= mask.bytes[i * p.keys + j] != 0;
          scores[j] = seen ? std::exp(score) : 0;
          sum += scores[j];
        }
        for (int64_t j = 0; j < p.keys; ++j)
          for (int64_t d = 0; d < p.valueWidth && sum > 0; ++d)
            total += scores[j] / sum *
                     value.get(b * p.strideValue[0] + g * p.strideValue[1] +
                               j * p.strideValue[2] + d) *
                     grad.get(b * p.strideOutput[0] + h * p.strideOutput[1] +
                              i * p.strideOutput[2] + d);
      }
  return total;
}

// The derivatives of the loss Σ output · grad must be the operands' cotangents.
void checkAttention(AttentionPlan p) {
  AttentionOperands o(p);
  if (p.dtypeMask == "i1") {
    for (auto &byte : o.mask.bytes)
      byte = random_() % 3 != 0;
    // The first row sees no key.
    std::fill_n(o.mask.bytes.begin(), p.keys, 0);
  }
  Tensor grad(p.dtype, p.batch * p.strideOutput[0]);
  o.forward(p);
  double total = 0;
  for (int64_t i = 0; i < p.batch * p.strideOutput[0]; ++i)
    total += o.output.get(i) * grad.get(i);
  ASSERT_NEAR(total, o.total(p, grad), 1e-3);
  p.backward = true;
  p.strideGrad = p.strideOutput;
  p.strideDQuery = p.strideQuery;
  p.strideDKey = p.strideKey;
  p.strideDValue = p.strideValue;
  Tensor dquery = o.query, dkey = o.key, dvalue = o.value;
  const void *operands[] = {grad.bytes.data(),     o.query.bytes.data(),
                            o.key.bytes.data(),    o.value.bytes.data(),
                            o.output.bytes.data(), o.lse.bytes.data(),
                            o.mask.bytes.data(),   dquery.bytes.data(),
                            dkey.bytes.data(),     dvalue.bytes.data()};
  attend(p, operands);
  for (Tensor *tensor : {&dquery, &dkey, &dvalue})
    tensor->refresh();
  struct Pair {
    Tensor &operand, &cotangent;
  };
  for (Pair pair :
       {Pair{o.query, dquery}, Pair{o.key, dkey}, Pair{o.value, dvalue}})
    for (int64_t i = 0; i < int64_t(pair.operand.bytes.size()) / 4; i += 37) {
      float value = float(pair.operand.get(i)), step = 1e-3f;
      pair.operand.set(i, value + step);
      double above = o.total(p, grad), high = pair.operand.get(i);
      pair.operand.set(i, value - step);
      double below = o.total(p, grad), low = pair.operand.get(i);
      pair.operand.set(i, value);
      ASSERT_NEAR(pair.cotangent.get(i), (above - below) / (high - low), 1e-3)
          << "at " << i;
    }
}

// With and without causality and masks, and with rows that see no key.
TEST(Attention, isItsDefinition) {
  checkAttention(attentionPlan("f32", false, 5, 7));
  checkAttention(attentionPlan("f32", true, 5, 7));
  checkAttention(attentionPlan("f32", true, 7, 5)); // some rows see no key
  for (const char *mask : {"f32", "i1"}) {
    AttentionPlan p = attentionPlan("f32", false, 5, 7);
    p.dtypeMask = mask;
    p.strideMask = {0, 0, 7, 1};
    checkAttention(p);
  }
}

// Through the table, with the bits of the plain function.
TEST_F(Libraries, attendInBf16) {
  AttentionPlan p = attentionPlan("bf16", true, 6, 6);
  AttentionOperands o(p);
  void *output = onDevice(o.output), *lse = onDevice(o.lse);
  void *operands[] = {onDevice(o.query), onDevice(o.key), onDevice(o.value),
                      nullptr,           output,          lse};
  CudaAttention plan = nullptr;
  CudaChoice choice;
  ASSERT_CUDA(cuda.planAttention(p, true, plan, choice));
  ASSERT_CUDA(cuda.attention(plan, operands, workspaceFor(choice), one));
  AttentionOperands expected = o;
  expected.forward(p);
  fetch(o.output, output);
  EXPECT_EQ(o.output.bytes, expected.output.bytes);
  // A plan's operands must hold all of its rows.
  operands[0] = static_cast<char *>(operands[0]) + 16;
  EXPECT_EQ(cuda.attention(plan, operands, workspaceFor(choice), one),
            status::invalidValue);
}

// A refused plan leaves nothing behind.
TEST_F(Libraries, refuseWhatTheRealOnesRefuse) {
  void *plan = nullptr;
  CudaChoice choice;
  AttentionPlan p = attentionPlan("f32", true, 6, 6);
  EXPECT_EQ(cuda.planAttention(p, true, plan, choice), cudaRefused);
  EXPECT_EQ(choice.algorithm, "fused attention supports bf16 and f16 only");
  p = attentionPlan("bf16", false, 6, 6);
  p.dtypeMask = "i1";
  EXPECT_EQ(cuda.planAttention(p, true, plan, choice), cudaRefused);
  p = attentionPlan("bf16", false, 6, 6);
  p.strideKey[2] += 4;
  EXPECT_EQ(cuda.planAttention(p, true, plan, choice), cudaRefused);
  EXPECT_EQ(choice.algorithm, "a stride of its key, " +
                                  std::to_string(p.strideKey[2]) +
                                  " elements, is not a multiple of 16 bytes");
  CudaGemmShape shape;
  shape.m = shape.n = shape.k = shape.lda = shape.ldb = shape.ldc = 4;
  shape.dtypeA = shape.dtypeC = "f32";
  shape.dtypeB = "bf16";
  EXPECT_EQ(cuda.planGemm(shape, cap, plan, choice), cudaRefused);
  shape.dtypeA = "bf16";
  shape.bias = true;
  EXPECT_EQ(cuda.planGemm(shape, cap, plan, choice), cudaRefused);
  EXPECT_EQ(cuda.alive().plans, 0u);
}

// The content of a workspace does not survive a call.
TEST_F(Libraries, writeTheirWorkspaces) {
  CudaGemmShape shape;
  shape.m = shape.n = shape.k = shape.lda = shape.ldb = shape.ldc = 4;
  shape.dtypeA = shape.dtypeB = shape.dtypeC = "f32";
  CudaGemm plan = nullptr;
  CudaChoice choice;
  ASSERT_CUDA(cuda.planGemm(shape, 1000, plan, choice));
  ASSERT_EQ(choice.workspaceBytes, 1000u);
  Tensor a("f32", 16), kept("f32", 250);
  void *workspace = onDevice(kept), *from = onDevice(a), *to = onDevice(a);
  EXPECT_EQ(cuda.gemm(plan, {from, from, to}, nullptr, one),
            status::invalidValue);
  ASSERT_CUDA(cuda.gemm(plan, {from, from, to}, workspace, one));
  fetch(kept, workspace);
  EXPECT_TRUE(std::isnan(kept.get(0)));
  EXPECT_TRUE(std::isnan(kept.get(249)));
}

} // namespace

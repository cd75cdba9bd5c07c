// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers at the edges, of functions of rows: softmaxes, norms and losses, with
// their gradients, on rows from 0 to 1e15 and with masked elements, against the
// same in long double. edges_test.cpp says what is compared and counted.
#include "tests/compiler/codegen/kernels/edges_test.h"

#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::testing;

namespace {

using Row = std::vector<Real>;

Real largest(const Row &x) { return *std::max_element(x.begin(), x.end()); }
Real logSumExp(const Row &x) {
  Real shift = largest(x), sum = 0;
  if (std::isinf(shift))
    return shift;
  for (Real each : x)
    sum += std::exp(each - shift);
  return shift + std::log(sum);
}
Real norm(const Row &x) {
  Real sum = 0;
  for (Real each : x)
    sum += each * each;
  return std::sqrt(sum);
}

Real normalised(const Row &x, size_t i) {
  Real mean = 0, variance = 0, count = x.size();
  for (Real each : x)
    mean += each / count;
  for (Real each : x)
    variance += square(each - mean) / count;
  return (x[i] - mean) / std::sqrt(variance + Real(1e-5));
}

Real meanSquare(const Row &x) {
  Real sum = 0;
  for (Real each : x)
    sum += square(each) / Real(x.size());
  return sum + Real(1e-5);
}

struct RowCase {
  const char *name,
      *body; // as of Case; $S: column; $R: statistic; $X: image; $W: weight
  // The element of the value and of the derivative of its sum at index `i`.
  Real (*value)(const Row &, size_t i);
  Real (*slope)(const Row &, size_t i);
  Limits limits;
  // Errors of smaller values are counted in ulp of this number, or of the
  // largest element of the input, of which logarithms are a difference.
  double scale = 1;
  bool withInput = false;
  // The body gives the derivative %dx too, and %y in f32.
  bool hasSlope = false;
};

const RowCase kRowCases[] = {
    {"softmax",
     "%y = nn.softmax %x : $T",
     [](const Row &x, size_t i) { return std::exp(x[i] - logSumExp(x)); },
     [](const Row &, size_t) { return Real(0); },
     {8, 2, 8, 8}},
    {"log softmax",
     "%y = nn.log_softmax %x : $T",
     [](const Row &x, size_t i) { return x[i] - logSumExp(x); },
     [](const Row &x, size_t i) {
       return 1 - Real(x.size()) * std::exp(x[i] - logSumExp(x));
     },
     {4, 2, 16, 16},
     1,
     true},
    {"layer norm",
     R"(%y, %m, %r = nn.layer_norm %x {epsilon = 1.0e-5 : f64}
            : $T -> $T, $R, $R)",
     normalised,
     [](const Row &, size_t) { return Real(0); },
     {4, 2, 64, 4}},
    {"rms norm",
     R"(%y, %r = nn.rms_norm %x {epsilon = 1.0e-5 : f64} : $T -> $T, $R)",
     [](const Row &x, size_t i) { return x[i] / std::sqrt(meanSquare(x)); },
     [](const Row &x, size_t i) {
       Real sum = 0;
       for (Real each : x)
         sum += each / Real(x.size());
       return (1 - x[i] * sum / meanSquare(x)) / std::sqrt(meanSquare(x));
     },
     {4, 2, 4, 2}},
    // A row is a channel of one image.
    {"batch norm",
     R"(%r = nn.reshape %x : $T -> $X
        %w = nn.constant dense<1.0> : $W
        %b = nn.constant dense<0.0> : $W
        %n, %m, %v = nn.batch_norm %r, %w, %b {epsilon = 1.0e-5 : f64}
            : $X, $W -> $X, $R, $R
        %y = nn.reshape %n : $X -> $T)",
     normalised,
     [](const Row &, size_t) { return Real(0); },
     {4, 2, 64, 4}},
    // Loss and gradient of a row in one op, as programs compute them, for
    // target
    // 3. The factor stands for the elements that the loss is broadcast to.
    {"cross entropy",
     R"(%t = nn.constant dense<3> : $I
        %w = nn.constant dense<1.0> : $R
        %f = nn.constant dense<8.0> : $R
        %l, %dx = nn.cross_entropy_rows %x, %t, %w, %f : $T, $I, $R
        %a = nn.reshape %l : $R -> $L
        %y = nn.broadcast %a : $L -> $F)",
     [](const Row &x, size_t) { return logSumExp(x) - x[3]; },
     [](const Row &x, size_t i) {
       return Real(x.size()) * (std::exp(x[i] - logSumExp(x)) - Real(i == 3));
     },
     {4, 1, 8, 2},
     1,
     true,
     true},
    // As the importer builds ReduceLogSumExp.
    {"log sum exp",
     R"(%m = nn.reduce max %x [1] : $T -> $S
        %a = nn.abs %m : $S
        %i = nn.constant dense<0x7F800000> : $S
        %b = nn.cmp eq %a, %i : $S -> $C
        %z = nn.constant dense<0.0> : $S
        %o = nn.select %b, %z, %m : $C, $S
        %w = nn.broadcast %o : $S -> $T
        %d = nn.sub %x, %w : $T
        %e = nn.exp %d : $T
        %s = nn.reduce sum %e [1] : $T -> $S
        %l = nn.log %s : $S
        %r = nn.add %l, %o : $S
        %y = nn.broadcast %r : $S -> $T)",
     [](const Row &x, size_t) { return logSumExp(x); },
     [](const Row &x, size_t i) {
       return Real(x.size()) * std::exp(x[i] - logSumExp(x));
     },
     {4, 0, 64, 0},
     1,
     true},
    // As the importer builds ReduceL2.
    {"l2 norm",
     R"(%q = nn.mul %x, %x : $T
        %s = nn.reduce sum %q [1] : $T -> $S
        %z = nn.constant dense<0.0> : $S
        %o = nn.constant dense<1.0> : $S
        %c = nn.cmp eq %s, %z : $S -> $C
        %p = nn.select %c, %o, %s : $C, $S
        %r = nn.sqrt %p : $S
        %t = nn.select %c, %z, %r : $C, $S
        %y = nn.broadcast %t : $S -> $T)",
     [](const Row &x, size_t) { return norm(x); },
     [](const Row &x, size_t i) {
       Real size = norm(x);
       return size == 0 ? 0 : Real(x.size()) * x[i] / size;
     },
     {4, 0, 16, 0},
     0},
};

// Softmax, norms and losses of rows of magnitudes from 0 to 1e15, and of rows
// of which one or all elements are masked.
TEST_P(EdgesTest, Rows) {
  constexpr size_t kSize = 8;
  std::vector<double> all;
  for (double scale : {0.0, 1e-10, 1e-4, 1.0, 17.0, 88.0, 104.0, 1e4, 1e15})
    for (int k = 0; k < 4; ++k)
      for (size_t i = 0; i < kSize; ++i)
        all.push_back(scale * std::sin(double(1 + all.size())));
  // One or all elements of a mask.
  for (double masked : {1.0, 8.0})
    for (size_t i = 0; i < kSize; ++i)
      all.push_back(double(i) < masked ? -INFINITY : double(i));
  size_t rows = all.size() / kSize;

  std::string text;
  for (const char *element : {"f32", "bf16"})
    for (auto [i, each] : llvm::enumerate(kRowCases)) {
      bool isBf16 = element == StringRef("bf16");
      if (isBf16 && each.limits.bf16 == 0)
        continue; // rounds between its ops, as PyTorch does
      std::string body = each.body;
      std::string statistic = llvm::formatv("tensor<{0}xf32>", rows);
      body = replaced(body, "$R", statistic);
      body = replaced(
          body, "$X",
          llvm::formatv("tensor<1x{0}x{1}x{2}>", rows, kSize, element));
      body =
          replaced(body, "$W", llvm::formatv("tensor<{0}x{1}>", rows, element));
      body = replaced(body, "$I", llvm::formatv("tensor<{0}xi64>", rows));
      for (auto [name, columns, type] :
           {std::tuple("$T", kSize, element),
            std::tuple("$S", size_t(1), element),
            std::tuple("$C", size_t(1), "i1"),
            std::tuple("$L", size_t(1), "f32"), std::tuple("$F", kSize, "f32")})
        body =
            replaced(body, name,
                     llvm::formatv("tensor<{0}x{1}x{2}>", rows, columns, type));
      std::string type =
          llvm::formatv("tensor<{0}x{1}x{2}>", rows, kSize, element);
      std::string results = type, values = "%y";
      if (each.hasSlope) {
        results =
            llvm::formatv("tensor<{0}x{1}xf32>, {2}", rows, kSize, type).str();
        values = "%y, %dx";
      }
      text += llvm::formatv("func.func private @{0}{1}(%x: {2}) -> ({4}) "
                            "attributes {{nn.kernel} {{\n{3}\nreturn {5} : "
                            "{4} }\n",
                            element, i, type, body, results, values);
    }
  std::vector<Computed> results = compute(text, all);
  ASSERT_FALSE(results.empty());
  for (const auto &[number, isBf16, x, y, dx] : results) {
    const RowCase &each = kRowCases[number];
    Worst value, derivative;
    for (size_t r = 0; r < rows; ++r) {
      Row row(x.floats.begin() + r * kSize, x.floats.begin() + (r + 1) * kSize);
      Real size = 0;
      for (Real element : row)
        if (std::isfinite(element))
          size = std::max(size, std::abs(element));
      for (size_t i = 0; i < kSize; ++i) {
        size_t at = r * kSize + i;
        Real expected = each.value(row, i);
        double scale = each.scale;
        if (each.withInput)
          scale = std::max<double>(scale, size);
        value.take(errorOf(y.floats[at], expected, isBf16 ? 8 : 24, scale), r,
                   y.floats[at]);
        Real expectedSlope = each.slope(row, i);
        if (std::isnan(double(expectedSlope)) || std::isnan(double(expected)))
          continue;
        derivative.take(
            errorOf(dx.floats[at], expectedSlope, isBf16 ? 8 : 24, kSize), r,
            dx.floats[at]);
      }
    }
    report(each.name, isBf16, each.limits, " of row ", value, derivative);
  }
}

} // namespace

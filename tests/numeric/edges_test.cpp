// Numbers at the edges: each function of one number, and each composite that
// the importer builds of them, on some 3000 points from -1e4 to 1e4, dense
// around 0 and where exp over- and underflows, with denormals, zeros, the
// largest numbers, infinities and NaN. Values and gradients of f32 and bf16
// kernels, as host loops and as grids, are compared with the same function in
// long double. The largest error of each is printed in ulp, and has a limit.
//
// A result below 2e-38, next to the smallest normal number, may be 0. The error
// of a derivative that is computed as a difference (1 - y² and y · (1 - y), as
// PyTorch computes them) is counted in ulp of 1 where the derivative is
// smaller.
#include "tests/numeric/kernel_harness.h"

#include "compiler/dialects/nn/Build.h"

#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::testing;

namespace {

using Real = long double;
using Function = Real (*)(Real);

// Limits in ulp of f32 and of bf16, for the value and the derivative.
struct Limits {
  double f32, bf16, slopeF32, slopeBf16;
};

struct Case {
  const char *name;
  // From %x to %y, with the constants %zero, %half, %one; $T is the type.
  const char *body;
  Function value, slope;
  Limits limits;
  // Errors of smaller values, and of smaller derivatives, are counted in ulp of
  // this number.
  double scale = 0, slopeScale = 0;
  bool isPeriodic = false;
};

Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
Real softplus(Real x) {
  return std::log1p(std::exp(-std::abs(x))) + (x < 0 ? 0 : x);
}
Real normal(Real x) { return std::erfc(-x * std::sqrt(Real(0.5))) / 2; }
Real density(Real x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(Real(-1)));
}
const Real kRoot = std::sqrt(2 / std::acos(Real(-1)));
Real tanhGate(Real x) {
  return sigmoid(2 * kRoot * (x + Real(0.044715) * x * x * x));
}
Real square(Real x) { return x * x; }
Real cube(Real x) { return x * x * x; }

#define FN(EXPRESSION) [](Real x) -> Real { return EXPRESSION; }
#define UNARY(OP) "%y = nn." OP " %x : $T"

const Case kCases[] = {
    {"exp", UNARY("exp"), FN(std::exp(x)), FN(std::exp(x)), {2, 1, 2, 1}},
    {"log", UNARY("log"), FN(std::log(x)), FN(1 / x), {2, 1, 1, 1}},
    {"expm1", UNARY("expm1"), FN(std::expm1(x)), FN(std::exp(x)), {2, 1, 2, 1}},
    {"log1p", UNARY("log1p"), FN(std::log1p(x)), FN(1 / (1 + x)), {3, 1, 2, 2}},
    {"sqrt",
     UNARY("sqrt"),
     FN(std::sqrt(x)),
     FN(Real(0.5) / std::sqrt(x)),
     {1, 1, 2, 2}},
    {"tanh",
     UNARY("tanh"),
     FN(std::tanh(x)),
     FN(1 / square(std::cosh(x))),
     {4, 1, 4, 3},
     0,
     1},
    {"erf",
     UNARY("erf"),
     FN(std::erf(x)),
     FN(2 / std::sqrt(std::acos(Real(-1))) * std::exp(-x * x)),
     {4, 1, 20, 20}},
    {"sigmoid",
     UNARY("sigmoid"),
     FN(sigmoid(x)),
     FN(sigmoid(x) * sigmoid(-x)),
     {4, 1, 4, 2},
     0,
     1},
    {"softplus", UNARY("softplus"), softplus, sigmoid, {4, 1, 4, 1}},
    {"log sigmoid",
     R"(%n = nn.neg %x : $T
        %s = nn.softplus %n : $T
        %y = nn.neg %s : $T)",
     FN(-softplus(-x)),
     FN(sigmoid(-x)),
     {4, 1, 4, 1}},
    {"silu",
     UNARY("silu"),
     FN(x * sigmoid(x)),
     FN(sigmoid(x) * (1 + x * sigmoid(-x))),
     {4, 1, 10, 1},
     1e-30,
     1},
    {"gelu erf",
     UNARY("gelu erf"),
     FN(x * normal(x)),
     FN(std::isinf(x) ? Real(x > 0) : normal(x) + x * density(x)),
     {4, 1, 4, 1},
     1,
     1},
    {"gelu tanh",
     UNARY("gelu tanh"),
     FN(x * tanhGate(x)),
     FN(std::abs(x) > 50
            ? Real(x > 0)
            : tanhGate(x) + 2 * x * tanhGate(x) * tanhGate(-x) * kRoot *
                                (1 + 3 * Real(0.044715) * x * x)),
     {4, 1, 24, 1},
     1,
     1},
    {"elu",
     R"(%c = nn.cmp gt %x, %zero : $T -> $B
        %m = nn.select %c, %zero, %x : $B, $T
        %e = nn.expm1 %m : $T
        %y = nn.select %c, %x, %e : $B, $T)",
     FN(x > 0 ? x : std::expm1(x)),
     FN(x > 0 ? 1 : std::exp(x)),
     {2, 1, 2, 1}},
    {"selu",
     R"(%k = nn.constant dense<1.05070102214813232421875> : $T
        %q = nn.constant dense<1.758099340847375> : $T
        %c = nn.cmp gt %x, %zero : $T -> $B
        %l = nn.mul %x, %k : $T
        %m = nn.select %c, %zero, %x : $B, $T
        %e = nn.expm1 %m : $T
        %n = nn.mul %e, %q : $T
        %y = nn.select %c, %l, %n : $B, $T)",
     FN(x > 0 ? Real(1.05070102214813232421875) * x
              : Real(1.758099340847375) * std::expm1(x)),
     FN(x > 0 ? Real(1.05070102214813232421875)
              : Real(1.758099340847375) * std::exp(x)),
     {3, 2, 3, 2}},
    // Of alpha 1/2.
    {"celu",
     R"(%t = nn.div %x, %half : $T
        %c = nn.cmp gt %x, %zero : $T -> $B
        %m = nn.select %c, %zero, %t : $B, $T
        %e = nn.expm1 %m : $T
        %n = nn.mul %e, %half : $T
        %y = nn.select %c, %x, %n : $B, $T)",
     FN(x > 0 ? x : std::expm1(2 * x) / 2),
     FN(x > 0 ? 1 : std::exp(2 * x)),
     {2, 1, 2, 1}},
    {"softsign",
     R"(%a = nn.abs %x : $T
        %d = nn.add %a, %one : $T
        %y = nn.div %x, %d : $T)",
     FN(x / (1 + std::abs(x))),
     FN(std::isinf(x) ? NAN : 1 / square(1 + std::abs(x))), // as in PyTorch
     {2, 2, 2, 2},
     0,
     1},
    // The derivative jumps at -3 and 3, where its halves are averaged; in bf16
    // also next to 3, where the ramp rounds to 1.
    {"hard swish",
     R"(%k = nn.constant dense<0.16666666666666666> : $T
        %top = nn.constant dense<1.0> : $T
        %l = nn.mul %x, %k : $T
        %o = nn.add %l, %half : $T
        %p = nn.maximum %o, %zero : $T
        %m = nn.minimum %p, %top : $T
        %y = nn.mul %x, %m : $T)",
     FN(std::isinf(x) ? (x > 0 ? x : NAN)
                      : x * std::clamp(x / 6 + Real(0.5), Real(0), Real(1))),
     FN(std::abs(x) == 3 ? x / 4 + Real(0.5)
        : x < -3         ? 0
        : x > 3          ? 1
                         : x / 3 + Real(0.5)),
     {2, 2, 2, 40},
     1,
     1},
    {"mish",
     R"(%s = nn.softplus %x : $T
        %t = nn.tanh %s : $T
        %y = nn.mul %x, %t : $T)",
     FN(x * std::tanh(softplus(x))),
     FN(std::tanh(softplus(x)) +
        x * sigmoid(x) / square(std::cosh(softplus(x)))),
     {8, 3, 16, 3},
     1e-29,
     1},
    // Binary cross-entropy with logits, of target 1/2.
    {"bce with logits",
     R"(%n = nn.neg %x : $T
        %a = nn.softplus %n : $T
        %b = nn.softplus %x : $T
        %c = nn.mul %half, %a : $T
        %d = nn.mul %half, %b : $T
        %y = nn.add %c, %d : $T)",
     FN(softplus(x) / 2 + softplus(-x) / 2),
     FN(std::tanh(x / 2) / 2),
     {4, 2, 4, 2},
     0,
     1},
    {"sin",
     UNARY("sin"),
     FN(std::sin(x)),
     FN(std::cos(x)),
     {1, 1, 1, 1},
     1,
     1,
     true},
    {"cos",
     UNARY("cos"),
     FN(std::cos(x)),
     FN(-std::sin(x)),
     {1, 1, 1, 1},
     1,
     1,
     true},
    {"rsqrt",
     UNARY("rsqrt"),
     FN(1 / std::sqrt(x)),
     FN(cube(1 / std::sqrt(x)) / -2),
     {2, 1, 5, 3}},
    {"pow 2.5",
     R"(%p = nn.constant dense<2.5> : $T
        %y = nn.pow %x, %p : $T)",
     FN(std::pow(x, Real(2.5))),
     FN(Real(2.5) * std::pow(x, Real(1.5))),
     {1, 1, 2, 2}},
};

std::vector<double> points() {
  std::vector<double> result;
  auto both = [&](double x) {
    result.push_back(x);
    result.push_back(-x);
  };
  for (double x : {0.0, double(INFINITY), 3.4028234663852886e38, 1e38, 1e30,
                   1e20, 0x1p-126, 0x1p-149, 0x1.8p-130})
    both(x);
  result.push_back(NAN);
  for (double x = 1e-44; x < 2e4; x *= 1.2)
    both(x);
  for (int i = 1; i <= 500; ++i) {
    both(20.0 * i);
    both(0.01 * i);
  }
  for (double center : {17.0, 88.0, 104.0})
    for (int i = -32; i <= 32; ++i)
      both(center + i / 16.0);
  return result;
}

// Appends to the function the derivative of its result with respect to its
// argument, and returns both.
void differentiate(func::FuncOp function) {
  Block &body = function.getBody().front();
  Operation *end = body.getTerminator();
  Value x = body.getArgument(0), y = end->getOperand(0);
  OpBuilder b(end);
  llvm::DenseMap<Value, Value> gradients;
  gradients[y] = nn::splat(b, end->getLoc(), y.getType(), 1);
  SmallVector<Operation *> ops;
  for (Operation &op : body.without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops)) {
    auto adjoint = dyn_cast<nn::AdjointOpInterface>(op);
    Value gradient = gradients.lookup(op->getResult(0));
    if (!adjoint || !gradient)
      continue;
    SmallVector<bool> needed(op->getNumOperands(), true);
    for (auto [i, operand] : llvm::enumerate(op->getOperands()))
      needed[i] = !operand.getDefiningOp<nn::ConstantOp>();
    SmallVector<Value> cotangents(op->getNumResults());
    cotangents[0] = gradient;
    SmallVector<Value> of(op->getNumOperands());
    if (failed(adjoint.buildAdjoint(b, cotangents, needed, of)))
      llvm::report_fatal_error("no adjoint");
    for (auto [operand, part] : llvm::zip(op->getOperands(), of)) {
      if (!part)
        continue;
      Value &sum = gradients[operand];
      sum = sum ? nn::AddOp::create(b, end->getLoc(), sum, part).getResult()
                : part;
    }
  }
  end->setOperands({y, gradients.lookup(x)});
  function.setType(FunctionType::get(
      function.getContext(), body.getArgumentTypes(), end->getOperandTypes()));
}

// The distance of two neighbours of `value` in a format with `digits` binary
// digits, which has no exponent below -126.
Real ulp(Real value, int digits) {
  int exponent = -126;
  if (value != 0)
    exponent = std::max(exponent, std::ilogb(value));
  return std::ldexp(Real(1), exponent - digits + 1);
}

// The error in ulp, infinite where a number should be none or the other way.
// `slack` is for products of which one factor over- or underflows before the
// result does.
double errorOf(double actual, Real expected, int digits, double scale,
               double slack = 1) {
  constexpr double kFlushed = 2e-38;
  double largest = std::ldexp(2 - std::ldexp(1.0, 1 - digits), 127);
  if (std::isnan(expected))
    return std::isnan(actual) ? 0 : INFINITY;
  if (std::abs(expected) < kFlushed * slack && actual == 0)
    return 0;
  if (std::abs(expected) > largest) {
    if (std::isinf(actual))
      return std::signbit(actual) == std::signbit(expected) ? 0 : INFINITY;
    if (std::isinf(expected))
      return INFINITY;
  }
  if (!std::isfinite(actual))
    return std::abs(expected) * slack >
                   largest * (1 - 4 * std::ldexp(1.0, -digits))
               ? 0
               : INFINITY;
  Real size = std::max(std::abs(expected), Real(scale));
  return double(std::abs(actual - expected) / ulp(size, digits));
}

struct Worst {
  double error = 0, at = 0, got = 0;
  void take(double e, double x, double value) {
    if (!(e <= error)) {
      error = e;
      at = x;
      got = value;
    }
  }
};

// What the kernel of a function computed from `x`.
struct Computed {
  size_t number; // of the function in its table
  bool isBf16;
  nn::ReferenceTensor x, y, dx; // dx is the derivative of y
};

// The parameter is the number of threads per block of a grid, or 0 for loops.
class EdgesTest : public ::testing::TestWithParam<int> {
protected:
  EdgesTest() { prepareContext(context); }

  // Runs the functions of `text`, whose names are the element type and the
  // number of the function, and their derivatives on `all`. A function may
  // return its derivative itself. Returns nothing
  // after a failure.
  std::vector<Computed> compute(const std::string &text,
                                const std::vector<double> &all) {
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module);
    if (!module)
      return {};
    for (auto function : module->getOps<func::FuncOp>())
      if (function.getNumResults() == 1)
        differentiate(function);
    std::string shown;
    llvm::raw_string_ostream(shown) << *module;
    LoadedKernels loaded(context, shown, "native", GetParam());
    std::vector<Computed> results;
    for (func::FuncOp kernel : loaded.kernels()) {
      StringRef name = kernel.getSymName();
      bool isBf16 = name.consume_front("bf16");
      if (!isBf16)
        name.consume_front("f32");
      size_t number = 0;
      EXPECT_FALSE(name.getAsInteger(10, number));
      auto type = cast<RankedTensorType>(kernel.getArgumentTypes()[0]);
      auto x = nn::ReferenceTensor::zeros(type);
      x.floats = all;
      x.round();
      auto valueType = cast<RankedTensorType>(kernel.getResultTypes()[0]);
      Buffer in(type), out(valueType), slope(type);
      in.fill(x);
      void *buffers[] = {in.data(), out.data(), slope.data()};
      loaded.run(kernel.getSymName(), 0, loaded.extent(kernel), buffers);
      results.push_back(
          {number, isBf16, x, out.read(valueType), slope.read(type)});
    }
    return results;
  }

  // Prints a line of the table and holds the errors under their limits. `place`
  // says what Worst::at is: " at " or " of row ".
  static void report(const char *name, bool isBf16, const Limits &limits,
                     const char *place, const Worst &value,
                     const Worst &derivative) {
    std::printf("%-16s %-5s %12.2f %15.6g %12.2f %15.6g\n", name,
                isBf16 ? "bf16" : "f32", value.error, value.at,
                derivative.error, derivative.at);
    EXPECT_LE(value.error, isBf16 ? limits.bf16 : limits.f32)
        << name << place << value.at << " is " << value.got;
    EXPECT_LE(derivative.error, isBf16 ? limits.slopeBf16 : limits.slopeF32)
        << "the derivative of " << name << place << derivative.at << " is "
        << derivative.got;
  }

  MLIRContext context;
};
std::string nameOf(const ::testing::TestParamInfo<int> &info) {
  return info.param ? "Grid" : "Loops";
}
INSTANTIATE_TEST_SUITE_P(Targets, EdgesTest, ::testing::Values(0, 1), nameOf);

std::string replaced(std::string text, StringRef name, const std::string &by) {
  for (size_t at; (at = text.find(name)) != std::string::npos;)
    text.replace(at, name.size(), by);
  return text;
}

TEST_P(EdgesTest, Functions) {
  std::vector<double> all = points();
  std::string text;
  for (const char *element : {"f32", "bf16"})
    for (auto [i, each] : llvm::enumerate(kCases)) {
      std::string type = llvm::formatv("tensor<{0}x{1}>", all.size(), element);
      std::string bits = llvm::formatv("tensor<{0}xi1>", all.size());
      std::string body = each.body;
      body = R"(%zero = nn.constant dense<0.0> : $T
        %half = nn.constant dense<0.5> : $T
        %one = nn.constant dense<1.0> : $T
        )" + body;
      text += llvm::formatv("func.func private @{0}{1}(%x: {2}) -> {2} "
                            "attributes {{nn.kernel} {{\n{3}\nreturn %y : "
                            "{2} }\n",
                            element, i, type,
                            replaced(replaced(body, "$T", type), "$B", bits));
    }
  std::printf("%-16s %-5s %28s %28s\n", "", "", "value: ulp at x",
              "derivative: ulp at x");
  std::vector<Computed> results = compute(text, all);
  ASSERT_EQ(results.size(), 2 * std::size(kCases));
  for (const auto &[number, isBf16, x, y, dx] : results) {
    const Case &each = kCases[number];
    Worst value, derivative;
    int digits = isBf16 ? 8 : 24;
    for (size_t i = 0; i < all.size(); ++i) {
      double at = x.floats[i];
      // Grids give NaN for angles that they cannot reduce.
      if (GetParam() && each.isPeriodic && std::isnan(y.floats[i]) &&
          std::abs(at) > 0x1p50)
        continue;
      value.take(errorOf(y.floats[i], each.value(at), digits, each.scale), at,
                 y.floats[i]);
      derivative.take(
          errorOf(dx.floats[i], each.slope(at), digits, each.slopeScale, 3), at,
          dx.floats[i]);
    }
    report(each.name, isBf16, each.limits, " at ", value, derivative);
  }
}

// ---- functions of rows ----

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

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles functions with their derivatives, runs them, and measures errors
// (edges_test.h). The derivative of a function is built from the adjoints of
// its ops, as the pass `grad` does.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "tests/compiler/codegen/kernels/edges_test.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace mlir;

namespace fsdpc::testing {

// Appends to the function the derivative of its result with respect to its
// argument, and returns both.
static void differentiate(func::FuncOp function) {
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
static Real ulp(Real value, int digits) {
  int exponent = -126;
  if (value != 0)
    exponent = std::max(exponent, std::ilogb(value));
  return std::ldexp(Real(1), exponent - digits + 1);
}

double errorOf(double actual, Real expected, int digits, double scale,
               double slack) {
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

std::vector<Computed> EdgesTest::compute(const std::string &text,
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

void EdgesTest::report(const char *name, bool isBf16, const Limits &limits,
                       const char *place, const Worst &value,
                       const Worst &derivative) {
  std::printf("%-16s %-5s %12.2f %15.6g %12.2f %15.6g\n", name,
              isBf16 ? "bf16" : "f32", value.error, value.at, derivative.error,
              derivative.at);
  EXPECT_LE(value.error, isBf16 ? limits.bf16 : limits.f32)
      << name << place << value.at << " is " << value.got;
  EXPECT_LE(derivative.error, isBf16 ? limits.slopeBf16 : limits.slopeF32)
      << "the derivative of " << name << place << derivative.at << " is "
      << derivative.got;
}

std::string replaced(std::string text, StringRef name, const std::string &by) {
  for (size_t at; (at = text.find(name)) != std::string::npos;)
    text.replace(at, name.size(), by);
  return text;
}

} // namespace fsdpc::testing

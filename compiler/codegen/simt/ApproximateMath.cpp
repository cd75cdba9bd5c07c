// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// approximate-math: tanh, exp and divisions in f32 by the instructions that a
// GPU's special function unit has for them. The host's polynomials and exact
// divisions take 10 to 30 instructions an element, which bounds elementwise
// kernels on bf16 by arithmetic instead of memory. Errors are those of the PTX
// ISA's tables for tanh, ex2 and rcp; bf16 rounds by 2⁻⁹. Quotients that are
// rounded to whole numbers stay exact.
#include "compiler/codegen/Passes.h"
#include "compiler/dialects/nn/ScalarBuilder.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace fsdpc::codegen {
#define GEN_PASS_DEF_APPROXIMATEMATH
#include "compiler/codegen/Passes.h.inc"
} // namespace fsdpc::codegen

using namespace mlir;
using namespace fsdpc;

namespace {

constexpr double kLog2E = 1.44269504088896341;

// Builds replacements in front of an op. Values are f32, scalars or vectors.
class Approximation : public nn::ScalarBuilder {
public:
  Approximation(OpBuilder &builder, Location loc)
      : ScalarBuilder(builder, loc), builder(builder), loc(loc) {}

  Value exp(Value x) { return apply("ex2.approx.ftz.f32", mul(x, kLog2E)); }
  Value tanh(Value x) { return apply("tanh.approx.f32", x); }
  Value divide(Value x, Value y) {
    return mul(x, apply("rcp.approx.ftz.f32", y));
  }

private:
  // The instruction reads nothing but its operand, so LLVM may move it and
  // merge equal ones.
  Value applyToScalar(StringRef instruction, Value x) {
    std::string code = (instruction + " $0, $1;").str();
    return LLVM::InlineAsmOp::create(
               builder, loc, x.getType(), ValueRange{x}, code,
               /*constraints=*/"=f,f", /*has_side_effects=*/false,
               /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
               LLVM::AsmDialectAttr(), ArrayAttr())
        .getRes();
  }
  Value apply(StringRef instruction, Value x) {
    auto vector = dyn_cast<VectorType>(x.getType());
    if (!vector)
      return applyToScalar(instruction, x);
    Value result = constant(x, 0);
    for (int64_t lane = 0; lane < vector.getNumElements(); ++lane) {
      ArrayRef<int64_t> place(lane);
      Value one = make<vector::ExtractOp>(x, place);
      result = make<vector::InsertOp>(applyToScalar(instruction, one), result,
                                      place);
    }
    return result;
  }

  OpBuilder &builder;
  Location loc;
};

// Returns true if the value is rounded to a whole number, as in a modulus. A
// product with a reciprocal may be just below the whole number that the
// quotient is: 41 / 41 would round down to 0.
bool isRounded(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return isa<math::FloorOp, math::RoundEvenOp>(user);
  });
}

// Returns the replacement of the op's result, or null if the op stays.
Value approximate(Operation *op) {
  if (op->getNumResults() != 1 ||
      !getElementTypeOrSelf(op->getResult(0).getType()).isF32())
    return {};
  OpBuilder builder(op);
  Approximation fast(builder, op->getLoc());
  if (auto divided = dyn_cast<arith::DivFOp>(op);
      divided && !isRounded(divided))
    return fast.divide(divided.getLhs(), divided.getRhs());
  if (auto tanh = dyn_cast<math::TanhOp>(op))
    return fast.tanh(tanh.getOperand());
  if (auto exp = dyn_cast<math::ExpOp>(op))
    return fast.exp(exp.getOperand());
  return {};
}

struct ApproximateMath : codegen::impl::ApproximateMathBase<ApproximateMath> {
  void runOnOperation() override {
    getOperation().walk([](gpu::GPUFuncOp kernel) {
      // An optimizer, whose number of blocks only the runtime knows. It updates
      // f32 and stays exact.
      if (!kernel.getKnownGridSize())
        return;
      kernel.walk([](Operation *op) {
        Value replacement = approximate(op);
        if (!replacement)
          return;
        op->getResult(0).replaceAllUsesWith(replacement);
        op->erase();
      });
    });
  }
};

} // namespace

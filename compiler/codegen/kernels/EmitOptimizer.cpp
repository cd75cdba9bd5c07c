// Vectorises the scalar program of an optimizer by cloning it op by op with
// vector types: arith and math ops accept scalars and vectors of any length.
// Ops that depend on the learning rate, the step and the decay only are
// computed once, outside the loop, in f64.
#include "compiler/codegen/kernels/EmitOptimizer.h"

#include "compiler/codegen/kernels/Half.h"

#include "compiler/dialects/nn/Build.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;

Type kernels::computeCopyOf(func::FuncOp program) {
  // In f32 the masters are the copy.
  auto compute = program->getAttrOfType<TypeAttr>(kComputeAttr);
  return compute && nn::isHalf(compute.getValue()) ? compute.getValue()
                                                   : Type();
}

Value OptimizerEmitter::i64(int64_t value) {
  return arith::ConstantIntOp::create(builder, loc, value, 64);
}

Value OptimizerEmitter::address(Value base, Type element, Value index) {
  return make<LLVM::GEPOp>(base.getType(), element, base, ValueRange{index});
}

// An op is uniform if all of its operands are.
void OptimizerEmitter::emitUniform(Value numbers) {
  // lr, step and decay are the last three arguments, after the states.
  for (unsigned i = 0; i < 3; ++i) {
    Value slot = address(numbers, builder.getF64Type(), i64(i));
    uniform.map(body.getArgument(2 + states + i),
                make<LLVM::LoadOp>(builder.getF64Type(), slot));
  }
  for (Operation &op : body.without_terminator())
    if (llvm::all_of(op.getOperands(),
                     [&](Value v) { return uniform.contains(v); }))
      builder.clone(op, uniform);
}

// Clones an op and, for a vector step, widens its results and scalar operands.
void OptimizerEmitter::cloneOp(Operation &op, IRMapping &mapping,
                               int64_t width) {
  Operation *clone = builder.clone(op, mapping);
  if (width == 1)
    return;
  // Operands of the scalar program that are the same for all elements are still
  // scalars in the clone.
  for (OpOperand &operand : clone->getOpOperands())
    if (!isa<VectorType>(operand.get().getType())) {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPoint(clone);
      Type type = VectorType::get({width}, operand.get().getType());
      operand.set(make<vector::BroadcastOp>(type, operand.get()));
    }
  // The clone still has scalar result types.
  for (Value result : clone->getResults())
    result.setType(VectorType::get({width}, result.getType()));
}

// Loads the parameter, the gradient and the states, runs the program, and
// stores the results. The gradient is scaled first, which is how clipping is
// applied.
// `lanes` decides only the alignment of the loads and stores.
void OptimizerEmitter::emitStep(Value index, int64_t width, int64_t lanes) {
  Type f32 = builder.getF32Type();
  Type type = width > 1 ? Type(VectorType::get({width}, f32)) : f32;
  IRMapping mapping = uniform;
  for (unsigned i = 0; i < 2 + states; ++i)
    mapping.map(
        body.getArgument(i),
        make<LLVM::LoadOp>(type, address(buffers[i], f32, index), 4 * lanes));
  Value factor = scale;
  if (width > 1)
    factor = make<vector::BroadcastOp>(type, factor);
  Value gradient = mapping.lookup(body.getArgument(1));
  mapping.map(body.getArgument(1), make<arith::MulFOp>(gradient, factor));

  for (Operation &op : body.without_terminator())
    if (!llvm::all_of(op.getResults(),
                      [&](Value v) { return uniform.contains(v); }))
      cloneOp(op, mapping, width);

  // A result that depends on lr, step and decay only is still a scalar.
  auto result = [&](unsigned i) {
    Value value = mapping.lookup(body.getTerminator()->getOperand(i));
    if (width > 1 && !isa<VectorType>(value.getType()))
      value = make<vector::BroadcastOp>(type, value);
    return value;
  };
  auto store = [&](Value value, Value buffer, Type element) {
    LLVM::StoreOp::create(builder, loc, value, address(buffer, element, index),
                          lanes * element.getIntOrFloatBitWidth() / 8);
  };
  store(result(0), buffers[0], f32);
  for (unsigned i = 0; i < states; ++i)
    store(result(1 + i), buffers[2 + i], f32);
  // The copy gets the new master weights, rounded.
  if (copyType)
    store(roundToHalfBits(builder, loc, result(0), copyType, roundsBf16),
          buffers.back(), builder.getI16Type());
}

namespace {

// Loops for the host: vectors, then the elements that are left.
class OptimizerLoops : OptimizerEmitter {
public:
  OptimizerLoops(OpBuilder &builder, func::FuncOp program,
                 const VectorTarget &target)
      : OptimizerEmitter(builder, program, target.roundsBf16),
        lanes(target.lanes) {}

  void emit(func::FuncOp function);

private:
  int64_t lanes;
};

void OptimizerLoops::emit(func::FuncOp function) {
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  Value begin = entry->getArgument(0), end = entry->getArgument(1);
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  auto buffer = [&](unsigned i) {
    Value slot = address(entry->getArgument(2), pointer, i64(i));
    return make<LLVM::LoadOp>(pointer, slot);
  };
  unsigned count = bufferCount();
  for (unsigned i = 0; i < count; ++i)
    buffers.push_back(buffer(i));
  // The buffer table ends with the address of `scale` and that of lr, step and
  // decay.
  scale = make<LLVM::LoadOp>(builder.getF32Type(), buffer(count));
  emitUniform(buffer(count + 1));

  Value length = make<arith::SubIOp>(end, begin);
  Value rest = make<arith::RemUIOp>(length, i64(lanes));
  Value middle = make<arith::SubIOp>(end, rest);
  for (auto [low, high, width] : {std::tuple(begin, middle, lanes),
                                  std::tuple(middle, end, int64_t(1))}) {
    auto loop = scf::ForOp::create(builder, loc, low, high, i64(width));
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    emitStep(loop.getInductionVar(), width);
  }
  func::ReturnOp::create(builder, loc);
}

} // namespace

void kernels::emitOptimizer(OpBuilder &builder, func::FuncOp program,
                            func::FuncOp function, const VectorTarget &target) {
  OptimizerLoops(builder, program, target).emit(function);
}

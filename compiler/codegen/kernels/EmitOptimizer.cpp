// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Vectorises the scalar program of an optimizer by cloning it op by op with
// vector types: arith and math ops accept scalars and vectors of any length.
// Ops that depend on the learning rate, the step, the decay and sums of the
// member only are computed once, outside the loop, in f64.
//
// A program whose results are summed works on groups of 16 elements, whatever
// the processor's vectors are. Members and shards begin at multiples of 16, so
// the sum of a group does not depend on how parameters are cut among ranks.
#include "compiler/codegen/kernels/EmitOptimizer.h"

#include "compiler/codegen/kernels/Half.h"
#include "compiler/codegen/kernels/Philox.h"
#include "compiler/dialects/nn/ElementBytes.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/Interfaces.h"
#include "runtime/abi/member_sums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;

static Type halfOf(func::FuncOp program, StringRef attribute) {
  auto type = program->getAttrOfType<TypeAttr>(attribute);
  return type && nn::isHalf(type.getValue()) ? type.getValue() : Type();
}

// In f32 the masters are the copy.
Type kernels::computeCopyOf(func::FuncOp program) {
  return halfOf(program, kComputeAttr);
}

Type kernels::narrowGradientOf(func::FuncOp program) {
  return halfOf(program, kGradientAttr);
}

unsigned kernels::sumsOf(func::FuncOp program) {
  return llvm::count_if(program.getArgumentTypes(),
                        [](Type type) { return type.isF64(); }) -
         3;
}

bool kernels::yieldsSums(func::FuncOp program) {
  return program.getResultTypes()[0].isF64();
}

Value OptimizerEmitter::i64(int64_t value) {
  return arith::ConstantIntOp::create(builder, loc, value, 64);
}

Value OptimizerEmitter::address(Value base, Type element, Value index) {
  return make<LLVM::GEPOp>(base.getType(), element, base, ValueRange{index});
}

// An op is uniform if all of its operands are. The operands of the random words
// are uniform as well.
void OptimizerEmitter::emitUniform(Value numbers, Value memberSums) {
  // lr, step and decay stand behind the states, and the sums behind these.
  auto load = [&](unsigned argument, Value base, unsigned i) {
    Value slot = address(base, builder.getF64Type(), i64(i));
    uniform.map(body.getArgument(argument + i),
                make<LLVM::LoadOp>(builder.getF64Type(), slot));
  };
  for (unsigned i = 0; i < 3; ++i)
    load(2 + states, numbers, i);
  for (unsigned i = 0; i < sums; ++i)
    load(5 + states, memberSums, i);
  for (Operation &op : body.without_terminator())
    if (llvm::all_of(op.getOperands(),
                     [&](Value v) { return uniform.contains(v); }))
      builder.clone(op, uniform);
  for (int64_t i = 0; takesWord && i < 4; ++i)
    key.push_back(make<LLVM::LoadOp>(
        builder.getI64Type(),
        address(buffers.back(), builder.getI64Type(), i64(i))));
}

// Clones an op and, for a vector step, widens its results and scalar operands.
// The emitted program has no ops of nn, so for such an op it builds the code.
void OptimizerEmitter::cloneOp(Operation &op, IRMapping &mapping,
                               int64_t width) {
  if (auto elementwise = dyn_cast<nn::ElementwiseOpInterface>(op)) {
    SmallVector<Value> operands;
    for (Value operand : op.getOperands()) {
      Value value = mapping.lookup(operand);
      if (width > 1 && !isa<VectorType>(value.getType()))
        value = make<vector::BroadcastOp>(
            VectorType::get({width}, value.getType()), value);
      operands.push_back(value);
    }
    return mapping.map(op.getResult(0),
                       elementwise.buildScalar(builder, loc, operands));
  }
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

Value OptimizerEmitter::loadElements(Value buffer, Type half, Value index,
                                     int64_t width, int64_t lanes,
                                     bool widens) {
  Type element = half ? Type(builder.getI16Type()) : builder.getF32Type();
  auto as = [&](Type type) {
    return width > 1 ? Type(VectorType::get({width}, type)) : type;
  };
  Value value = make<LLVM::LoadOp>(as(element), address(buffer, element, index),
                                   lanes * nn::elementBytes(element));
  if (half && !widens)
    return make<arith::BitcastOp>(as(half), value);
  return half ? widenHalfBits(builder, loc, value, half) : value;
}

// The words follow from the element's place in its parameter alone
// (fsdp.optimizer). Parts, members and vectors begin at multiples of four, so
// the lanes of a vector are whole groups of four, and a single element at
// `index` is word index % 4 of its group.
Value OptimizerEmitter::randomWords(Value index, int64_t width) {
  Type i32 = builder.getI32Type();
  assert((width == 1 || width % 4 == 0) &&
         "a vector takes all four words of each call");
  int64_t calls = std::max<int64_t>(width / 4, 1);
  Type type = calls > 1 ? Type(VectorType::get({calls}, i32)) : i32;
  auto word = [&](Value number) {
    Value low = make<arith::TruncIOp>(i32, number);
    return calls > 1 ? make<vector::BroadcastOp>(type, low) : low;
  };
  auto high = [&](Value number) {
    return word(make<arith::ShRUIOp>(number, i64(32)));
  };
  Value seed = key[0], stream = key[1], step = key[2];
  Value position = make<arith::AddIOp>(index, key[3]);
  Value group = word(make<arith::ShRUIOp>(position, i64(2)));
  if (calls > 1) {
    auto steps = llvm::to_vector(llvm::seq<int32_t>(0, int32_t(calls)));
    group = make<arith::AddIOp>(
        group, arith::ConstantOp::create(
                   builder, loc,
                   DenseElementsAttr::get(cast<VectorType>(type),
                                          ArrayRef<int32_t>(steps))));
  }
  Philox philox(builder, loc, type);
  Philox::Words words = philox.run(
      {group, word(stream), high(stream), word(step)}, word(seed), high(seed));
  if (width > 1)
    return philox.interleave(words, calls, width);
  return philox.pick(words, word(make<arith::AndIOp>(position, i64(3))));
}

// Loads the parameter, the gradient and the states, and runs the program. The
// gradient is scaled first, which is how clipping is applied. `lanes` decides
// only the alignment of the loads.
SmallVector<Value> OptimizerEmitter::emitProgram(Value index, int64_t width,
                                                 int64_t lanes) {
  Type f32 = builder.getF32Type();
  Type type = width > 1 ? Type(VectorType::get({width}, f32)) : f32;
  IRMapping mapping = uniform;
  // A parameter without a master is bf16 in memory. An optimizer's program,
  // which takes a word then, reads it widened, and one of sums as it is.
  bool isSummedBf16 = body.getArgument(0).getType().isBF16();
  Type half = takesWord || isSummedBf16 ? Type(builder.getBF16Type()) : Type();
  mapping.map(body.getArgument(0), loadElements(buffers[0], half, index, width,
                                                lanes, !isSummedBf16));
  mapping.map(body.getArgument(1),
              loadElements(buffers[1], gradientType, index, width, lanes));
  if (takesWord)
    mapping.map(body.getArguments().back(), randomWords(index, width));
  for (unsigned i = 2; i < 2 + states; ++i)
    mapping.map(body.getArgument(i),
                loadElements(buffers[i], {}, index, width, lanes));
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
  SmallVector<Value> results;
  for (Value yielded : body.getTerminator()->getOperands()) {
    Value value = mapping.lookup(yielded);
    if (width > 1 && !isa<VectorType>(value.getType()))
      value = make<vector::BroadcastOp>(
          VectorType::get({width}, value.getType()), value);
    results.push_back(value);
  }
  return results;
}

// Returns the bf16 of an f32 that the program has rounded, whose lower half is
// 0. A conversion would lose numbers below the least normal one on some
// processors.
Value OptimizerEmitter::upperHalf(Value value, int64_t width) {
  auto as = [&](Type element) {
    return width > 1 ? Type(VectorType::get({width}, element)) : element;
  };
  Type i32 = as(builder.getI32Type());
  Value bits = make<arith::BitcastOp>(i32, value);
  Value sixteen = arith::ConstantOp::create(
      builder, loc, nn::scalarAttr(builder.getI32Type(), 16));
  if (width > 1)
    sixteen = make<vector::BroadcastOp>(i32, sixteen);
  Value shifted = make<arith::ShRUIOp>(bits, sixteen);
  return make<arith::TruncIOp>(as(builder.getI16Type()), shifted);
}

void OptimizerEmitter::emitStep(Value index, int64_t width, int64_t lanes) {
  SmallVector<Value> results = emitProgram(index, width, lanes);
  Type f32 = builder.getF32Type();
  auto store = [&](Value value, Value buffer, Type element) {
    LLVM::StoreOp::create(builder, loc, value, address(buffer, element, index),
                          lanes * nn::elementBytes(element));
  };
  if (takesWord)
    store(upperHalf(results[0], width), buffers[0], builder.getI16Type());
  else
    store(results[0], buffers[0], f32);
  // An average of squares that follows from factors is read like a state, but
  // there is no new one. It stands in front of the states.
  unsigned written = results.size() - 1;
  for (unsigned i = 0; i < written; ++i)
    store(results[1 + i], buffers[2 + states - written + i], f32);
  // The copy gets the new master weights, rounded.
  if (copyType)
    store(roundToHalfBits(builder, loc, results[0], copyType, roundsBf16),
          buffers.back(), builder.getI16Type());
}

// Adds the halves of a vector until one element is left. The order is the same
// on all processors, and shorter than one by one.
Value OptimizerEmitter::sumLanes(Value vector) {
  int64_t width = cast<VectorType>(vector.getType()).getDimSize(0);
  while (width > 1) {
    width /= 2;
    auto half = [&](int64_t from) {
      auto lanesOf = llvm::to_vector(llvm::seq<int64_t>(from, from + width));
      return make<vector::ShuffleOp>(vector, vector, lanesOf);
    };
    Value low = half(0), high = half(width);
    vector = make<arith::AddFOp>(low, high);
  }
  return make<vector::ExtractOp>(vector, ArrayRef<int64_t>{0});
}

// The last group may reach past the member's end, where there is memory of the
// layout but no element that counts.
void OptimizerEmitter::emitGroup(Value index, Value begin, Value end, Value to,
                                 int64_t lanes) {
  auto indices = VectorType::get({sumGroup}, builder.getI64Type());
  SmallVector<int64_t> steps = llvm::to_vector(llvm::seq<int64_t>(0, sumGroup));
  Value lane = arith::ConstantOp::create(
      builder, loc, DenseElementsAttr::get(indices, ArrayRef<int64_t>(steps)));
  Value left =
      make<vector::BroadcastOp>(indices, make<arith::SubIOp>(end, index));
  Value counts = make<arith::CmpIOp>(arith::CmpIPredicate::slt, lane, left);

  SmallVector<Value> results = emitProgram(index, sumGroup, lanes);
  auto type = VectorType::get({sumGroup}, builder.getF64Type());
  Value zero =
      arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
  Value group =
      make<arith::DivUIOp>(make<arith::SubIOp>(index, begin), i64(sumGroup));
  Value slot =
      make<arith::MulIOp>(group, i64(static_cast<int64_t>(results.size())));
  for (auto [i, result] : llvm::enumerate(results)) {
    Value sum = sumLanes(make<arith::SelectOp>(counts, result, zero));
    Value place = make<arith::AddIOp>(slot, i64(static_cast<int64_t>(i)));
    LLVM::StoreOp::create(builder, loc, sum,
                          address(to, builder.getF64Type(), place));
  }
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
  void emitUpdate(Value begin, Value end);
  void emitSums(Value begin, Value end, Value to);

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
  // The buffer table ends with the address of `scale`, that of lr, step and
  // decay, and that of sums: taken or, if the results are summed, written.
  scale = make<LLVM::LoadOp>(builder.getF32Type(), buffer(count));
  Value last = isSum || sums > 0 ? buffer(count + 2) : Value();
  emitUniform(buffer(count + 1), last);
  if (isSum)
    emitSums(begin, end, last);
  else
    emitUpdate(begin, end);
  func::ReturnOp::create(builder, loc);
}

void OptimizerLoops::emitUpdate(Value begin, Value end) {
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
}

// Writes the sums of one group after those of the other.
void OptimizerLoops::emitSums(Value begin, Value end, Value to) {
  auto loop = scf::ForOp::create(builder, loc, begin, end, i64(sumGroup));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  emitGroup(loop.getInductionVar(), begin, end, to);
}

} // namespace

void kernels::emitOptimizer(OpBuilder &builder, func::FuncOp program,
                            func::FuncOp function, const VectorTarget &target) {
  OptimizerLoops(builder, program, target).emit(function);
}

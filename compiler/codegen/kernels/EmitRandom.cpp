// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dropout and random numbers with Philox.h, in vectors. The generator is a
// function of a counter, so the backward pass draws the same mask again and
// none is stored. A call yields the words of four elements; if the lanes begin
// at a multiple of four, each call serves four lanes, else each lane makes its
// own call and picks one word.
#include "compiler/codegen/kernels/ElementEmitter.h"
#include "compiler/codegen/kernels/Philox.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;

// Returns true if the lanes cover whole groups of four elements: every term but
// the lane's own is a multiple of four, and so is every place where a loop of
// this width may begin.
bool ElementEmitter::coversGroups(const IndexExpr &position) {
  bool grouped = vectorizes(position) && width % 4 == 0 &&
                 space.laneStride(position) == 1 && position.constant % 4 == 0;
  for (auto [id, factor] : position.terms)
    grouped &= factor % 4 == 0 || space.atom(id).usesLane;
  for (const Stage &stage : plan.stages)
    for (int64_t cut : stage.cuts)
      grouped &= cut % 4 == 0;
  return grouped;
}

// Returns the random words of the elements at `position`, a vector if the lanes
// differ. `tensor` is the runtime's: seed low and high, microbatch, step.
// The second word of the counter is the op's number, so that two ops of a model
// draw different numbers in the same step.
Value ElementEmitter::randomWord(Value tensor, uint64_t ordinal,
                                 const IndexExpr &position, int depth) {
  SmallVector<Value, 4> random;
  for (int64_t i = 0; i < 4; ++i)
    random.push_back(element(tensor, {IndexExpr(i)}).value);
  bool vector = vectorizes(position), grouped = coversGroups(position);
  IndexExpr group = grouped ? position : space.floorDiv(position, 4);
  Value groups = vector && !grouped ? vectorIndex(group) : scalarIndex(group);
  Value within =
      vector && !grouped ? vectorIndex(space.mod(position, 4)) : Value();
  if (!vector)
    within = scalarIndex(space.mod(position, 4));
  insertAt(depth);
  int64_t calls = !vector ? 1 : grouped ? width / 4 : width;
  Type i32 = builder.getI32Type();
  Type type = calls > 1 ? Type(VectorType::get({calls}, i32)) : i32;
  auto each = [&](Value scalar) -> Value {
    return calls > 1 ? make<vector::BroadcastOp>(type, scalar) : scalar;
  };
  // The counter's first word is the number of the group of four elements.
  Value counter;
  if (grouped) {
    Value first = make<arith::ShRUIOp>(groups, splatLike(groups.getType(), 2));
    counter = each(make<arith::TruncIOp>(i32, first));
    if (calls > 1) {
      auto steps = llvm::to_vector(llvm::seq<int32_t>(0, calls));
      Value step = make<arith::ConstantOp>(DenseElementsAttr::get(
          cast<VectorType>(type), ArrayRef<int32_t>(steps)));
      counter = make<arith::AddIOp>(counter, step);
    }
  } else {
    counter = make<arith::TruncIOp>(type, groups);
  }
  Philox philox(builder, loc, type);
  Value stream = philox.constant(type, static_cast<uint32_t>(ordinal));
  Philox::Words words =
      philox.run({counter, stream, each(random[2]), each(random[3])},
                 each(random[0]), each(random[1]));
  if (grouped)
    return philox.interleave(words, calls, width);
  // Each lane made its own call and wants word `within` of its group.
  return philox.pick(words, within);
}

Lanes ElementEmitter::dropout(nn::DropoutOp op, const Index &index) {
  Lanes input = element(op.getInput(), index);
  IndexExpr position = space.linearize(index, nn::shapeOf(op.getResult()));
  int depth = std::max(input.depth, space.depth(position));
  Value word = randomWord(op.getRandom(), op.getOp(), position, depth);

  // Keeps the element if (word >> 8) · 2⁻²⁴ >= ratio, compared as integers.
  double ratio = op.getRatio().convertToDouble();
  auto number = [&](Value like, double value) {
    return splatLike(like.getType(), value);
  };
  Value uniform = make<arith::ShRUIOp>(word, number(word, 8));
  Value keep =
      make<arith::CmpIOp>(arith::CmpIPredicate::uge, uniform,
                          number(uniform, std::ceil(ratio * (1 << 24))));
  Value value = vectorizes(position) ? spread(input.value) : input.value;
  Value scaled =
      make<arith::MulFOp>(value, splatLike(value.getType(), 1 / (1 - ratio)));
  Value result = make<arith::SelectOp>(keep, scaled, number(value, 0));
  return {roundTo(nn::tensorType(op.getResult()).getElementType(), result),
          depth};
}

// (2 · (word >> 9) + 1) · 2⁻²⁴: 24 bits, which f32 holds exactly.
Lanes ElementEmitter::uniform(nn::UniformOp op, const Index &index) {
  IndexExpr position = space.linearize(index, nn::shapeOf(op.getResult()));
  int depth = space.depth(position);
  Value word = randomWord(op.getRandom(), op.getOp(), position, depth);
  Value upper = make<arith::ShRUIOp>(word, splatLike(word.getType(), 8));
  Value odd = make<arith::OrIOp>(upper, splatLike(word.getType(), 1));
  Type f32 = builder.getF32Type();
  if (auto lanes = dyn_cast<VectorType>(odd.getType()))
    f32 = lanes.clone(f32);
  Value number = make<arith::SIToFPOp>(f32, odd);
  return {make<arith::MulFOp>(number, splatLike(f32, 0x1p-24)), depth};
}

// Dropout and random numbers with philox4x32-10 (Salmon et al., Parallel Random
// Numbers: As Easy as 1, 2, 3, 2011), in vectors. The generator is a function
// of a counter, so the backward pass draws the same mask again and none is
// stored. A call yields the words of four elements; if the lanes begin at a
// multiple of four, each call serves four lanes, else each lane makes its own
// call and picks one word.
#include "compiler/codegen/kernels/ElementEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;

namespace {

using Words = std::array<Value, 4>;

// Emits the generator's ten rounds on scalars or vectors of i32.
// The generator's constants are those of the paper. Its counter has four words
// and its key two.
class Philox {
public:
  Philox(OpBuilder &builder, Location loc, Type type)
      : builder(builder), loc(loc), type(type) {}

  Words run(Words counter, Value keyLow, Value keyHigh) {
    for (int round = 0; round < 10; ++round) {
      auto [low0, high0] = multiply(counter[0], 0xD2511F53u);
      auto [low1, high1] = multiply(counter[2], 0xCD9E8D57u);
      counter = {exclusiveOr(exclusiveOr(high1, counter[1]), keyLow), low1,
                 exclusiveOr(exclusiveOr(high0, counter[3]), keyHigh), low0};
      keyLow = add(keyLow, 0x9E3779B9u);
      keyHigh = add(keyHigh, 0xBB67AE85u);
    }
    return counter;
  }

  Value constant(Type like, uint64_t value) {
    Type element = getElementTypeOrSelf(like);
    TypedAttr attr = builder.getIntegerAttr(
        element, APInt(element.getIntOrFloatBitWidth(), value));
    if (auto vector = dyn_cast<VectorType>(like))
      attr = DenseElementsAttr::get(vector, attr);
    return arith::ConstantOp::create(builder, loc, attr);
  }

private:
  Value exclusiveOr(Value a, Value b) {
    return arith::XOrIOp::create(builder, loc, a, b);
  }
  Value add(Value a, uint32_t b) {
    return arith::AddIOp::create(builder, loc, a, constant(a.getType(), b));
  }
  // Returns the low and the high half of the 64-bit product.
  std::pair<Value, Value> multiply(Value a, uint32_t b) {
    Type wide = builder.getI64Type();
    if (auto vector = dyn_cast<VectorType>(type))
      wide = VectorType::get(vector.getShape(), wide);
    Value product = arith::MulIOp::create(
        builder, loc, arith::ExtUIOp::create(builder, loc, wide, a),
        constant(wide, b));
    Value high =
        arith::ShRUIOp::create(builder, loc, product, constant(wide, 32));
    return {arith::TruncIOp::create(builder, loc, type, product),
            arith::TruncIOp::create(builder, loc, type, high)};
  }

  OpBuilder &builder;
  Location loc;
  Type type;
};

// Returns the word of each of `width` elements from calls that serve four
// elements each. Word w of call c is lane c of words[w]; element i is word i %
// 4 of call i / 4.
Value interleave(OpBuilder &builder, Location loc, const Words &words,
                 int64_t calls, int64_t width) {
  auto lanes = [&](Value v) -> Value {
    if (calls > 1)
      return v;
    return vector::BroadcastOp::create(builder, loc,
                                       VectorType::get({1}, v.getType()), v);
  };
  auto pair = [&](Value a, Value b) -> Value {
    auto all = llvm::to_vector(llvm::seq<int64_t>(0, 2 * calls));
    Value low = lanes(a), high = lanes(b);
    return vector::ShuffleOp::create(builder, loc, low, high, all);
  };
  SmallVector<int64_t> order;
  for (int64_t i = 0; i < width; ++i)
    order.push_back(i % 4 * calls + i / 4);
  Value low = pair(words[0], words[1]), high = pair(words[2], words[3]);
  return vector::ShuffleOp::create(builder, loc, low, high, order);
}

} // namespace

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
  Words words = philox.run({counter, stream, each(random[2]), each(random[3])},
                           each(random[0]), each(random[1]));
  if (grouped)
    return interleave(builder, loc, words, calls, width);
  // Each lane made its own call and wants word `within` of its group.
  Value word = words[3];
  for (int64_t i = 2; i >= 0; --i) {
    Value isWord = make<arith::CmpIOp>(arith::CmpIPredicate::eq, within,
                                       splatLike(within.getType(), i));
    word = make<arith::SelectOp>(isWord, words[i], word);
  }
  return word;
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

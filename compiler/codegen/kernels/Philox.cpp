// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The constants are the multipliers and Weyl increments of the paper.
#include "compiler/codegen/kernels/Philox.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fsdpc::codegen::kernels;

Philox::Words Philox::run(Words counter, Value keyLow, Value keyHigh) {
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

Value Philox::constant(Type like, uint64_t value) {
  Type element = getElementTypeOrSelf(like);
  TypedAttr attr = builder.getIntegerAttr(
      element, APInt(element.getIntOrFloatBitWidth(), value));
  if (auto vector = dyn_cast<VectorType>(like))
    attr = DenseElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(builder, loc, attr);
}

Value Philox::exclusiveOr(Value a, Value b) {
  return arith::XOrIOp::create(builder, loc, a, b);
}

Value Philox::add(Value a, uint32_t b) {
  return arith::AddIOp::create(builder, loc, a, constant(a.getType(), b));
}

std::pair<Value, Value> Philox::multiply(Value a, uint32_t b) {
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

// Word w of call c is lane c of words[w].
Value Philox::interleave(const Words &words, int64_t calls, int64_t width) {
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

Value Philox::pick(const Words &words, Value which) {
  Value word = words[3];
  for (int64_t i = 2; i >= 0; --i) {
    Value isWord =
        arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, which,
                              constant(which.getType(), uint64_t(i)));
    word = arith::SelectOp::create(builder, loc, isWord, words[i], word);
  }
  return word;
}

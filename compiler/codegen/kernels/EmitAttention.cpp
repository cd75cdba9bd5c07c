// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Softmax over a block of attention scores, and its backward from the
// log-sum-exp (Dao et al., FlashAttention, 2022). The matrix products around it
// are library calls, so this kernel only sees rows of scores in scratch memory.
// Rows are padded to whole vectors, hence only the last vector of a row needs a
// lane mask, and keys that a row does not see (causal) are not computed.
#include "compiler/codegen/kernels/EmitAttention.h"

#include "compiler/codegen/kernels/Half.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/ScalarBuilder.h"
#include "runtime/abi/attention_lse.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <limits>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;

namespace {

// Running values per reduction. With a single one, each addition would wait for
// the one before, which takes four times as long.
constexpr int64_t kAccumulators = 4;

constexpr double kLowest = std::numeric_limits<float>::lowest();

// Emits the kernel of one op. The state below the constructor's is set by
// emit(), then by each row, so an emitter serves one function.
class AttentionEmitter : nn::ScalarBuilder {
public:
  AttentionEmitter(OpBuilder &builder, const VectorTarget &target)
      : ScalarBuilder(builder, builder.getUnknownLoc()), builder(builder),
        loc(builder.getUnknownLoc()), target(target) {}

  template <typename AttentionOp>
  void emit(AttentionOp op, func::FuncOp function);

private:
  using Values = SmallVector<Value>;

  Value i64(int64_t value) {
    return arith::ConstantIntOp::create(builder, loc, value, 64);
  }
  Type vectorOf(Type type) { return VectorType::get({target.lanes}, type); }
  Value splat(double value) {
    auto type = cast<VectorType>(vectorOf(builder.getF32Type()));
    return make<arith::ConstantOp>(DenseElementsAttr::get(
        type, Attribute(builder.getF32FloatAttr(value))));
  }
  Value spread(Value scalar) {
    return make<vector::BroadcastOp>(vectorOf(scalar.getType()), scalar);
  }
  Value address(Value base, Type stored, Value index) {
    return make<LLVM::GEPOp>(base.getType(), stored, base, ValueRange{index});
  }
  // The alignment is the element's, also for vectors: rows of a mask may begin
  // anywhere.
  Value load(Type type, Value base, Type stored, Value index) {
    unsigned alignment = nn::elementBytes(stored);
    return make<LLVM::LoadOp>(type, address(base, stored, index), alignment);
  }
  void store(Value value, Value base, Type stored, Value index) {
    LLVM::StoreOp::create(builder, loc, value, address(base, stored, index),
                          nn::elementBytes(stored));
  }
  // Stores f32 lanes in the op's element type.
  void storeElements(Value value, Value base, Value index) {
    if (nn::isHalf(element))
      value = roundToHalfBits(builder, loc, value, element, target.roundsBf16);
    store(value, base, storageType(element), index);
  }
  // Converts a value as it lies in memory to f32 or i1.
  Value widened(Value stored, Type type) {
    if (type.isInteger(1))
      return make<arith::CmpIOp>(arith::CmpIPredicate::ne, stored,
                                 constant(stored, 0));
    return nn::isHalf(type) ? widenHalfBits(builder, loc, stored, type)
                            : stored;
  }
  // Builds a loop. `body` gets the index and the carried values, and returns
  // their next values.
  Values loop(Value low, Value high, int64_t step, ValueRange carried,
              llvm::function_ref<Values(Value, ValueRange)> body);
  // Loops over the vectors of keys that the row sees. `body` gets the first key
  // of the vector, a mask of the lanes that count (null if all do) and one
  // carried value. If there are several carried values, vectors update them in
  // turn.
  Values overKeys(ValueRange carried,
                  llvm::function_ref<Value(Value, Value, Value)> body);
  // Combines several running vectors into one scalar.
  Value total(ValueRange sums, llvm::function_ref<Value(Value, Value)> combine);
  Value larger(Value a, Value b) {
    return make<arith::SelectOp>(
        make<arith::CmpFOp>(arith::CmpFPredicate::OGT, a, b), a, b);
  }
  Value score(Value key, Value counts);
  Value dot(Value row, Value a, Value b);
  void forward(Value row);
  void backward(Value row);
  Value correction(Value lse);
  void zeroHidden(ValueRange matrices);

  OpBuilder &builder;
  Location loc;
  VectorTarget target;

  Type element;  // of queries, keys and values
  Type maskType; // null without a mask
  double scale = 1;
  bool maskPerKey = false; // the mask has a value per key, not one per row
  int64_t valueWidth = 0;

  Values buffers;
  Value numbers[6]; // the run-time numbers of a block; see fsdpc.h
  // State of the row that is being built:
  Value keys,
      whole; // the number of keys that it sees, and of those in whole vectors
  Value at;  // the offset of its scores and weights
  Value maskRow; // the offset of its mask
};

AttentionEmitter::Values
AttentionEmitter::loop(Value low, Value high, int64_t step, ValueRange carried,
                       llvm::function_ref<Values(Value, ValueRange)> body) {
  auto loop = scf::ForOp::create(builder, loc, low, high, i64(step), carried);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  Values results = body(loop.getInductionVar(), loop.getRegionIterArgs());
  if (!carried.empty())
    scf::YieldOp::create(builder, loc, results);
  return Values(loop.getResults());
}

// Three loops cover the keys: steps of several vectors, one per running value;
// the remaining whole vectors, all added to the first running value; and the
// last vector with its mask, in a loop that runs at most once.
AttentionEmitter::Values AttentionEmitter::overKeys(
    ValueRange carried, llvm::function_ref<Value(Value, Value, Value)> body) {
  int64_t lanes = target.lanes, count = std::max<int64_t>(carried.size(), 1);
  auto one = [&](Value key, ValueRange sums, Value counts) {
    Values results(sums);
    Value sum = body(key, counts, sums.empty() ? Value() : sums[0]);
    if (!sums.empty())
      results[0] = sum;
    return results;
  };
  Value low = i64(0);
  Values sums(carried);
  if (count > 1) {
    Value rest = make<arith::RemUIOp>(whole, i64(count * lanes));
    Value high = make<arith::SubIOp>(whole, rest);
    sums = loop(low, high, count * lanes, sums, [&](Value key, ValueRange in) {
      Values out;
      for (auto [i, sum] : llvm::enumerate(in))
        out.push_back(
            body(make<arith::AddIOp>(key, i64(i * lanes)), Value(), sum));
      return out;
    });
    low = high;
  }
  sums = loop(low, whole, lanes, sums,
              [&](Value key, ValueRange in) { return one(key, in, Value()); });
  return loop(whole, keys, lanes, sums, [&](Value key, ValueRange in) {
    auto steps = llvm::to_vector(llvm::seq<int64_t>(0, lanes));
    Value step = make<arith::ConstantOp>(
        DenseElementsAttr::get(cast<VectorType>(vectorOf(builder.getI64Type())),
                               ArrayRef<int64_t>(steps)));
    Value left = spread(make<arith::SubIOp>(keys, key));
    return one(key, in,
               make<arith::CmpIOp>(arith::CmpIPredicate::slt, step, left));
  });
}

// Combines the running vectors in their order, then the lanes, so the order is
// fixed.
Value AttentionEmitter::total(ValueRange sums,
                              llvm::function_ref<Value(Value, Value)> combine) {
  Value sum = sums.front();
  for (Value other : sums.drop_front())
    sum = combine(sum, other);
  return foldLanes(builder, loc, sum, combine);
}

// Returns the scaled and masked scores at `key`. Lanes that do not count are
// -∞.
Value AttentionEmitter::score(Value key, Value counts) {
  Type f32 = builder.getF32Type();
  Value index = make<arith::AddIOp>(at, key);
  Value s = mul(load(vectorOf(f32), buffers[0], f32, index), scale);
  Value hidden = constant(s, -std::numeric_limits<double>::infinity());
  if (maskType) {
    Type stored = storageType(maskType);
    Value mask;
    if (!maskPerKey) {
      mask = spread(load(stored, buffers[3], stored, maskRow));
    } else if (Value place = make<arith::AddIOp>(maskRow, key); !counts) {
      mask = load(vectorOf(stored), buffers[3], stored, place);
    } else {
      // The last vector may extend past the end of the mask's memory.
      Value none =
          make<arith::ConstantOp>(builder.getZeroAttr(vectorOf(stored)));
      unsigned alignment = nn::elementBytes(stored);
      mask = make<LLVM::MaskedLoadOp>(vectorOf(stored),
                                      address(buffers[3], stored, place),
                                      counts, none, alignment);
    }
    mask = widened(mask, maskType);
    s = maskType.isInteger(1) ? make<arith::SelectOp>(mask, s, hidden)
                              : add(s, mask);
  }
  return counts ? make<arith::SelectOp>(counts, s, hidden) : s;
}

// Writes zeros after the vectors of seen keys, up to the last key of the block:
// the products that follow read whole rows.
void AttentionEmitter::zeroHidden(ValueRange matrices) {
  Value begin = make<arith::AddIOp>(keys, i64(target.lanes - 1));
  begin = make<arith::SubIOp>(begin,
                              make<arith::RemUIOp>(begin, i64(target.lanes)));
  loop(begin, numbers[0], target.lanes, {}, [&](Value key, ValueRange) {
    for (Value matrix : matrices)
      storeElements(splat(0), matrix, make<arith::AddIOp>(at, key));
    return Values();
  });
}

// Three passes over the row: the maximum; the exponentials and their sum, kept
// in the scores' memory; the weights. Subtracting the maximum keeps exp from
// overflowing. Stores log-sum-exp = maximum + log(sum), from which the backward
// computes the weights again.
void AttentionEmitter::forward(Value row) {
  Type f32 = builder.getF32Type();
  // A row may see no key at all. Its maximum is then the lowest finite number
  // and its sum the smallest normal one, so that no NaN (∞ - ∞, 0 / 0) arises.
  Value lowest = splat(std::numeric_limits<float>::lowest());
  Values maxima = overKeys(Values(kAccumulators, lowest),
                           [&](Value key, Value counts, Value sum) {
                             return larger(sum, score(key, counts));
                           });
  Value maximum = total(maxima, [&](Value a, Value b) { return larger(a, b); });
  Value shift = spread(maximum);
  Values sums = overKeys(
      Values(kAccumulators, splat(0)), [&](Value key, Value counts, Value sum) {
        Value e = exp(sub(score(key, counts), shift));
        store(e, buffers[0], f32, make<arith::AddIOp>(at, key));
        return add(sum, e);
      });
  Value sum = total(sums, [&](Value a, Value b) { return add(a, b); });
  // Before the sum is bounded below: a row without keys has log-sum-exp -∞.
  store(add(maximum, make<math::LogOp>(sum)), buffers[2], f32, row);
  sum = larger(sum, constant(sum, std::numeric_limits<float>::min()));
  Value factor = spread(div(constant(sum, 1), sum));
  // The last vector is stored without its mask. Its hidden lanes hold exp(-∞) =
  // 0, which is the weight that they must have.
  overKeys({}, [&](Value key, Value, Value) {
    Value index = make<arith::AddIOp>(at, key);
    Value e = load(vectorOf(f32), buffers[0], f32, index);
    storeElements(mul(e, factor), buffers[1], index);
    return Value();
  });
  zeroHidden(buffers[1]);
}

// Emits Σ a · b over a row of the output's width. In the backward pass a is the
// gradient of the output and b the output: their product is the sum of weight ·
// dweight over the row, which the gradient of softmax subtracts.
Value AttentionEmitter::dot(Value row, Value a, Value b) {
  Type stored = storageType(element);
  Value rowA = make<arith::MulIOp>(row, numbers[4]);
  Value rowB = make<arith::MulIOp>(row, numbers[5]);
  auto product = [&](Type type, Value i) {
    Value x = load(type, a, stored, make<arith::AddIOp>(rowA, i));
    Value y = load(type, b, stored, make<arith::AddIOp>(rowB, i));
    return mul(widened(x, element), widened(y, element));
  };
  Value end = i64(valueWidth);
  Value vectors = i64(valueWidth / target.lanes * target.lanes);
  Values sums = loop(i64(0), vectors, target.lanes, splat(0),
                     [&](Value i, ValueRange in) {
                       return Values{add(in[0], product(vectorOf(stored), i))};
                     });
  Value sum = total(sums, [&](Value a, Value b) { return add(a, b); });
  return loop(vectors, end, 1, sum,
              [&](Value i, ValueRange in) {
                return Values{add(in[0], product(stored, i))};
              })
      .front();
}

// Returns the factor with which the weights exp(score - lse) of a row add up to
// 1 (attention_lse.h).
Value AttentionEmitter::correction(Value lse) {
  Value far =
      make<arith::CmpFOp>(arith::CmpFPredicate::OGT, make<math::AbsFOp>(lse),
                          constant(lse, attentionExactLse));
  auto branch = scf::IfOp::create(builder, loc, lse.getType(), far,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  Value shift = spread(lse);
  Values sums = overKeys(Values(kAccumulators, splat(0)),
                         [&](Value key, Value counts, Value sum) {
                           return add(sum, exp(sub(score(key, counts), shift)));
                         });
  Value sum = total(sums, [&](Value a, Value b) { return add(a, b); });
  // Bounded as in the forward pass: a row may see no key.
  sum = larger(sum, constant(sum, std::numeric_limits<float>::min()));
  scf::YieldOp::create(builder, loc, div(constant(sum, 1), sum));
  builder.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(builder, loc, constant(lse, 1));
  return branch.getResult(0);
}

// weight = exp(score - lse) · factor and dscore = weight · (dweight - centre) ·
// scale, where the centre is Σ weight · dweight over the row (see dot).
void AttentionEmitter::backward(Value row) {
  Type f32 = builder.getF32Type();
  Value lse = load(f32, buffers[2], f32, row);
  // The log-sum-exp of a row without keys is -∞. The lowest finite number in
  // its place makes the weights 0 instead of NaN.
  lse = larger(lse, constant(lse, kLowest));
  Value factor = spread(correction(lse));
  lse = spread(lse);
  Value centre = spread(dot(row, buffers[6], buffers[7]));
  overKeys({}, [&](Value key, Value counts, Value) {
    Value index = make<arith::AddIOp>(at, key);
    Value weight = mul(exp(sub(score(key, counts), lse)), factor);
    Value dweight = load(vectorOf(f32), buffers[4], f32, index);
    Value dscore = mul(mul(weight, sub(dweight, centre)), scale);
    if (counts) // lanes past the row's end may hold NaN
      dscore = make<arith::SelectOp>(counts, dscore, splat(0));
    storeElements(weight, buffers[1], index);
    storeElements(dscore, buffers[5], index);
    return Value();
  });
  zeroHidden({buffers[1], buffers[5]});
}

template <typename AttentionOp>
void AttentionEmitter::emit(AttentionOp op, func::FuncOp function) {
  constexpr bool isBackward = std::is_same_v<AttentionOp, nn::AttentionGradOp>;
  element = nn::tensorType(op.getQuery()).getElementType();
  scale = op.getScale().convertToDouble();
  valueWidth = nn::shapeOf(op.getValue()).back();
  if (Value mask = op.getMask()) {
    maskType = nn::tensorType(mask).getElementType();
    maskPerKey = nn::shapeOf(mask).back() != 1;
  }

  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  // The address table holds the operands' pointers, then the pointer to the
  // run-time numbers.
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  auto buffer = [&](int64_t i) {
    Value slot = address(entry->getArgument(2), pointer, i64(i));
    return make<LLVM::LoadOp>(pointer, slot);
  };
  int64_t count = isBackward ? 8 : 4;
  for (int64_t i = 0; i < count; ++i)
    buffers.push_back(buffer(i));
  Value list = buffer(count);
  Type integer = builder.getI64Type();
  for (int64_t i = 0, end = isBackward ? 6 : 4; i < end; ++i)
    numbers[i] = load(integer, list, integer, i64(i));

  // Each row is independent, so the runtime may give rows to threads as it
  // likes.
  loop(entry->getArgument(0), entry->getArgument(1), 1, {},
       [&](Value row, ValueRange) {
         keys = numbers[0];
         // numbers[2] is what the block's first row sees; each later row sees
         // one key more. Both ends are clamped: a row may see none, or more
         // keys than the block has.
         if (op.getCausal()) {
           keys =
               make<arith::MinSIOp>(keys, make<arith::AddIOp>(numbers[2], row));
           keys = make<arith::MaxSIOp>(keys, i64(0));
         }
         Value rest = make<arith::RemUIOp>(keys, i64(target.lanes));
         whole = make<arith::SubIOp>(keys, rest);
         at = make<arith::MulIOp>(row, numbers[1]);
         maskRow = make<arith::MulIOp>(row, numbers[3]);
         isBackward ? backward(row) : forward(row);
         return Values();
       });
  func::ReturnOp::create(builder, loc);
}

} // namespace

void kernels::emitAttention(OpBuilder &builder, func::FuncOp program,
                            func::FuncOp function, const VectorTarget &target) {
  AttentionEmitter emitter(builder, target);
  Operation &op = program.getBody().front().front();
  if (auto forward = dyn_cast<nn::AttentionOp>(op))
    emitter.emit(forward, function);
  else
    emitter.emit(cast<nn::AttentionGradOp>(op), function);
}

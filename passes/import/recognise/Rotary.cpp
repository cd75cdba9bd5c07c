// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Recognises rotary position embedding (Su et al., 2021) in the form with two
// halves: x · cos + concat(-x[d/2:], x[:d/2]) · sin.
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/import/recognise/Match.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::passes::recognise;

// Returns true if the value is the half of x that begins at `begin` on the last
// axis.
static bool isHalf(Value value, Value x, int64_t begin) {
  auto slice = value.getDefiningOp<nn::SliceOp>();
  if (!slice || slice.getInput() != x)
    return false;
  ArrayRef<int64_t> shape = nn::shapeOf(x), part = nn::shapeOf(value);
  ArrayRef<int64_t> offsets = slice.getOffsets();
  auto isZero = [](int64_t offset) { return offset == 0; };
  return part.drop_back() == shape.drop_back() &&
         part.back() * 2 == shape.back() && offsets.back() == begin &&
         slice.getStrides().back() == 1 &&
         llvm::all_of(offsets.drop_back(), isZero);
}

// Matches concat(-x[d/2:], x[:d/2]).
static bool isRotatedHalf(Value value, Value x) {
  auto concat = value.getDefiningOp<nn::ConcatOp>();
  ArrayRef<int64_t> shape = nn::shapeOf(x);
  if (!concat || concat.getInputs().size() != 2 ||
      value.getType() != x.getType() ||
      int64_t(concat.getAxis()) != int64_t(shape.size()) - 1 ||
      shape.back() % 2 != 0)
    return false;
  auto negated = concat.getInputs()[0].getDefiningOp<nn::NegOp>();
  return negated && isHalf(negated.getInput(), x, shape.back() / 2) &&
         isHalf(concat.getInputs()[1], x, 0);
}

namespace {
struct Rotary : OpRewritePattern<nn::AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(nn::AddOp op,
                                PatternRewriter &rewriter) const override {
    // Sums and products commute, so all orders are tried. `x` is found by the
    // half that is rotated.
    for (bool swapped : {false, true}) {
      auto plain =
          (swapped ? op.getRhs() : op.getLhs()).getDefiningOp<nn::MulOp>();
      auto turned =
          (swapped ? op.getLhs() : op.getRhs()).getDefiningOp<nn::MulOp>();
      if (!plain || !turned)
        return failure();
      for (auto [x, cos] : {std::pair(plain.getLhs(), plain.getRhs()),
                            std::pair(plain.getRhs(), plain.getLhs())})
        for (auto [half, sin] : {std::pair(turned.getLhs(), turned.getRhs()),
                                 std::pair(turned.getRhs(), turned.getLhs())})
          if (isRotatedHalf(half, x)) {
            recognise::Builder b(rewriter, op);
            Value rotary = b.create<nn::RotaryOp>(op.getType(), x,
                                                  table(b, cos), table(b, sin),
                                                  /*transposed=*/false);
            rewriter.replaceOp(op, rotary);
            return success();
          }
    }
    return failure();
  }

  // Returns the table as it was before it was broadcast, with the input's rank.
  // One table serves all layers and batches, so it is read small.
  static Value table(recognise::Builder &b, Value value) {
    size_t rank = nn::shapeOf(value).size();
    Value small = throughBroadcasts(value);
    Shape shape(rank - nn::shapeOf(small).size(), 1);
    llvm::append_range(shape, nn::shapeOf(small));
    return b.reshape(small, shape);
  }
};
} // namespace

void recognise::populateRotary(RewritePatternSet &patterns) {
  patterns.add<Rotary>(patterns.getContext());
}

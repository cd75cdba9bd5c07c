// decompose-attention: writes attention as batched products around row kernels,
// saving the rows' log-sum-exp alone (Dao et al., FlashAttention, 2022).
#include "passes/kernels/Passes.h"

namespace fsdpc {
#define GEN_PASS_DEF_DECOMPOSEATTENTION
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc

using namespace mlir;
using namespace fsdpc;

namespace {

RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

// The shapes and the scores of one attention, forward or backward.
class AttentionBuilder {
public:
  template <typename AttentionOp>
  AttentionBuilder(AttentionOp op)
      : builder(op), loc(op.getLoc()), query(op.getQuery()), key(op.getKey()),
        value(op.getValue()), mask(op.getMask()),
        scale(op.getScale().convertToDouble()), causal(op.getCausal()) {
    ArrayRef<int64_t> q = typeOf(query).getShape();
    batch = q[0];
    heads = q[1];
    rows = q[2];
    groups = typeOf(key).getDimSize(1);
    columns = typeOf(key).getDimSize(2);
    stat = typeOf(op.getLse()).getElementType();
    element = typeOf(query).getElementType();
  }

  void forward(nn::AttentionOp op);
  void backward(nn::AttentionGradOp op);

private:
  RankedTensorType scoresType(Type type) {
    return RankedTensorType::get({batch, heads, rows, columns}, type);
  }
  // Heads of one group as rows of one matrix, and back.
  Value grouped(Value tensor) {
    int64_t width = typeOf(tensor).getShape().back();
    return reshape(tensor, {batch, groups, heads / groups * rows, width});
  }
  Value ungrouped(Value tensor) {
    int64_t width = typeOf(tensor).getShape().back();
    return reshape(tensor, {batch, heads, rows, width});
  }
  Value reshape(Value tensor, ArrayRef<int64_t> shape) {
    auto type = RankedTensorType::get(shape, typeOf(tensor).getElementType());
    return type == tensor.getType()
               ? tensor
               : nn::ReshapeOp::create(builder, loc, type, tensor);
  }
  // [b, g, m, k] · [b, g, k, n]; transposes say how operands are stored.
  Value product(Value a, Value b, bool transposeA, bool transposeB) {
    ArrayRef<int64_t> left = typeOf(a).getShape(), right = typeOf(b).getShape();
    auto type = RankedTensorType::get(
        {batch, groups, left[transposeA ? 3 : 2], right[transposeB ? 2 : 3]},
        typeOf(a).getElementType());
    return nn::MatmulOp::create(builder, loc, type, a, b, Value(), transposeA,
                                transposeB);
  }
  Value cast(Value tensor, Type type) {
    auto target = typeOf(tensor).clone(type);
    return target == tensor.getType()
               ? tensor
               : nn::CastOp::create(builder, loc, target, tensor);
  }
  Value broadcast(Value tensor, RankedTensorType type) {
    return type == tensor.getType()
               ? tensor
               : nn::BroadcastOp::create(builder, loc, type, tensor);
  }
  Value splat(RankedTensorType type, double number) {
    Attribute attribute =
        isa<FloatType>(type.getElementType())
            ? Attribute(builder.getFloatAttr(type.getElementType(), number))
            : Attribute(builder.getIntegerAttr(type.getElementType(),
                                               static_cast<int64_t>(number)));
    return nn::ConstantOp::create(builder, loc, type,
                                  DenseElementsAttr::get(type, attribute));
  }
  Value rowReduce(nn::ReduceKind kind, Value tensor) {
    SmallVector<int64_t> shape(typeOf(tensor).getShape());
    shape.back() = 1;
    auto type = RankedTensorType::get(shape, typeOf(tensor).getElementType());
    return nn::ReduceOp::create(
        builder, loc, type, kind, tensor,
        builder.getDenseI64ArrayAttr(static_cast<int64_t>(shape.size()) - 1));
  }
  // q · kᵀ · scale + mask in the statistics' type; -inf where a key is hidden.
  Value scores();

  OpBuilder builder;
  Location loc;
  Value query, key, value, mask;
  double scale;
  bool causal;
  int64_t batch, heads, rows, groups, columns;
  Type stat, element;
};

Value AttentionBuilder::scores() {
  RankedTensorType type = scoresType(stat);
  Value raw = ungrouped(product(grouped(query), key, false, true));
  Value result = nn::MulOp::create(builder, loc, type, cast(raw, stat),
                                   splat(type, scale));
  Value hidden = splat(type, -std::numeric_limits<double>::infinity());
  if (mask && typeOf(mask).getElementType().isInteger(1)) {
    Value keep = broadcast(mask, scoresType(builder.getI1Type()));
    result = nn::SelectOp::create(builder, loc, type, keep, result, hidden);
  } else if (mask) {
    Value addend = broadcast(cast(mask, stat), type);
    result = nn::AddOp::create(builder, loc, type, result, addend);
  }
  if (!causal)
    return result;
  // Key s is seen by query t where s ≤ t + (S - T).
  RankedTensorType index = scoresType(builder.getI32Type());
  Value t = nn::IotaOp::create(builder, loc, index, 2);
  Value s = nn::IotaOp::create(builder, loc, index, 3);
  if (columns != rows)
    t = nn::AddOp::create(builder, loc, index, t, splat(index, columns - rows));
  Value seen = nn::CmpOp::create(builder, loc, scoresType(builder.getI1Type()),
                                 nn::Predicate::le, s, t);
  return nn::SelectOp::create(builder, loc, type, seen, result, hidden);
}

void AttentionBuilder::forward(nn::AttentionOp op) {
  RankedTensorType type = scoresType(stat);
  RankedTensorType row = RankedTensorType::get({batch, heads, rows, 1}, stat);
  Value score = scores();
  // A row without any key: its maximum is taken as 0, its sum as 1.
  Value maximum = nn::MaximumOp::create(
      builder, loc, row, rowReduce(nn::ReduceKind::max, score),
      splat(row, std::numeric_limits<float>::lowest()));
  Value shifted =
      nn::SubOp::create(builder, loc, type, score, broadcast(maximum, type));
  Value weight = nn::ExpOp::create(builder, loc, type, shifted);
  Value sum = nn::MaximumOp::create(
      builder, loc, row, rowReduce(nn::ReduceKind::sum, weight),
      splat(row, std::numeric_limits<float>::min()));
  Value probability =
      nn::DivOp::create(builder, loc, type, weight, broadcast(sum, type));
  Value lse = nn::AddOp::create(builder, loc, row, maximum,
                                nn::LogOp::create(builder, loc, row, sum));
  Value output =
      product(grouped(cast(probability, element)), value, false, false);
  op.replaceAllUsesWith(
      ValueRange{ungrouped(output), reshape(lse, {batch, heads, rows})});
}

void AttentionBuilder::backward(nn::AttentionGradOp op) {
  RankedTensorType type = scoresType(stat);
  Value lse = broadcast(reshape(op.getLse(), {batch, heads, rows, 1}), type);
  Value probability = nn::ExpOp::create(
      builder, loc, type, nn::SubOp::create(builder, loc, type, scores(), lse));
  Value grad = op.getGrad();
  // Σ over keys of p · dp is Σ over the width of the output times its
  // cotangent.
  RankedTensorType wide = typeOf(grad).clone(stat);
  Value dot = rowReduce(nn::ReduceKind::sum,
                        nn::MulOp::create(builder, loc, wide, cast(grad, stat),
                                          cast(op.getOutput(), stat)));
  Value dProbability =
      cast(ungrouped(product(grouped(grad), value, false, true)), stat);
  Value centred =
      nn::SubOp::create(builder, loc, type, dProbability, broadcast(dot, type));
  Value dScore = nn::MulOp::create(
      builder, loc, type,
      nn::MulOp::create(builder, loc, type, probability, centred),
      splat(type, scale));
  Value p = grouped(cast(probability, element));
  Value ds = grouped(cast(dScore, element));
  Value dValue = product(p, grouped(grad), true, false);
  Value dQuery = ungrouped(product(ds, key, false, false));
  Value dKey = product(ds, grouped(query), true, false);
  op.replaceAllUsesWith(ValueRange{dQuery, dKey, dValue});
}

struct DecomposeAttention
    : fsdpc::impl::DecomposeAttentionBase<DecomposeAttention> {
  void runOnOperation() override {
    getOperation().walk([](Operation *op) {
      if (!isa<nn::AttentionOp, nn::AttentionGradOp>(op))
        return;
      Operation *before = op->getPrevNode();
      if (auto attention = dyn_cast<nn::AttentionOp>(op))
        AttentionBuilder(attention).forward(attention);
      else
        AttentionBuilder(cast<nn::AttentionGradOp>(op))
            .backward(cast<nn::AttentionGradOp>(op));
      // What stands for the op belongs where it belonged.
      for (Operation *part = before ? before->getNextNode()
                                    : &op->getBlock()->front();
           part != op; part = part->getNextNode())
        part->setDiscardableAttrs(op->getDiscardableAttrDictionary());
      op->erase();
    });
  }
};

} // namespace

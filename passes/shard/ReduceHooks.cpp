// Builds and checks hooks on gradients (ReduceHooks.h), after the communication
// hooks of PyTorch's DDP (torch/distributed/algorithms/ddp_comm_hooks). There a
// hook also calls the collective; here it only says what is reduced, so that
// hooks compose and every strategy can schedule the collective.
#include "passes/shard/ReduceHooks.h"

#include "compiler/dialects/fsdp/Rules.h"
#include "compiler/dialects/nn/Build.h"

using namespace mlir;

namespace fsdpc::passes {

using fsdp::FSDPDialect;
using fsdp::ReduceHook;

// Rounds to the narrow type and back. The wire has the type of --reduce-dtype,
// which holds the rounded values exactly if it is f32 or the same.
static Value buildCast(OpBuilder &builder, Location loc, const ReduceHook &hook,
                       Value value) {
  Type narrow = fsdp::floatType(hook.type, builder.getContext());
  Type own = nn::tensorType(value).getElementType();
  return nn::castTo(builder, loc, nn::castTo(builder, loc, value, narrow), own);
}

// NaN stays NaN, so that the norm shows it.
static Value buildClip(OpBuilder &builder, Location loc, const ReduceHook &hook,
                       Value value) {
  Type type = value.getType();
  Value low = nn::splat(builder, loc, type, -hook.limit);
  Value above = nn::MaximumOp::create(builder, loc, value, low);
  Value high = nn::splat(builder, loc, type, hook.limit);
  return nn::MinimumOp::create(builder, loc, above, high);
}

Value applyHooks(const fsdp::CompileOptions &options, OpBuilder &builder,
                 Location loc, FlatSymbolRefAttr unit, Value gradient) {
  // The ops that hooks insert stand between these two.
  Block *block = builder.getInsertionBlock();
  auto end = builder.getInsertionPoint();
  for (auto [index, hook] : llvm::enumerate(options.reduceHooks)) {
    Operation *before = end == block->begin() ? nullptr : &*std::prev(end);
    gradient = hook.kind == ReduceHook::Kind::Cast
                   ? buildCast(builder, loc, hook, gradient)
                   : buildClip(builder, loc, hook, gradient);
    auto first = before ? std::next(before->getIterator()) : block->begin();
    for (Operation &op : llvm::make_range(first, end)) {
      op.setAttr(kHookAttr, builder.getI64IntegerAttr(index));
      op.setAttr(FSDPDialect::kUnitAttr, unit);
      op.setAttr(FSDPDialect::kBackwardAttr, builder.getUnitAttr());
    }
  }
  return gradient;
}

// Returns the numbers of the hooks that the value has passed, the last first.
// mixed-precision may have put casts of its own between.
static SmallVector<int64_t> hooksBehind(Value value) {
  SmallVector<int64_t> numbers;
  while (Operation *op = value.getDefiningOp()) {
    auto number = op->getAttrOfType<IntegerAttr>(kHookAttr);
    if (!number && !isa<nn::CastOp, nn::CopyOp>(op))
      break;
    if (number && (numbers.empty() || numbers.back() != number.getInt()))
      numbers.push_back(number.getInt());
    value = op->getOperand(0);
  }
  return numbers;
}

static LogicalResult missesHook(fsdp::PackOp pack, size_t gradient) {
  return fsdp::broken(pack, "hook")
         << "gradient " << gradient << " of layout '" << pack.getLayout()
         << "' does not pass each --reduce-hook once and in order; they are "
            "the ops with '"
         << kHookAttr << "'";
}

LogicalResult verifyHooks(const fsdp::CompileOptions &options,
                          fsdp::PackOp pack) {
  for (auto [index, value] : llvm::enumerate(pack->getOperands())) {
    SmallVector<int64_t> found = hooksBehind(value);
    for (auto [number, hook] : llvm::enumerate(options.reduceHooks)) {
      // A cast to the type that the model computes in may have no ops.
      bool optional =
          hook.kind == ReduceHook::Kind::Cast && hook.type == options.paramType;
      bool isNext = !found.empty() && found.back() == int64_t(number);
      if (isNext)
        found.pop_back();
      else if (!optional)
        return missesHook(pack, index);
    }
    if (!found.empty())
      return missesHook(pack, index);
  }
  return success();
}

} // namespace fsdpc::passes

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds the hooks that fsdpc knows by name, as nn ops (HookOps.h), and copies
// those of the user's functions. A gradient is f32 here; mixed-precision
// converts hooks together with what they read.
#include "passes/shard/HookOps.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace fsdpc::passes {
namespace {

using fsdp::ReduceHook;

// Builds one hook on one gradient.
struct HookBuilder {
  OpBuilder &builder;
  Location loc;

  // A constant of the shape and type of `like`.
  Value splat(Value like, double value) {
    return nn::splat(builder, loc, like.getType(), value);
  }

  // Rounds to the narrow type and back. The wire has the type of
  // --reduce-dtype, which holds the rounded values exactly if it is f32 or the
  // same.
  Value cast(Value value, ElementType type) {
    Type narrow = fsdp::floatType(type, builder.getContext());
    Type own = nn::tensorType(value).getElementType();
    // Kernels fuse the pair, so that it costs no memory.
    return nn::castTo(builder, loc, nn::castTo(builder, loc, value, narrow),
                      own);
  }

  // NaN stays NaN, so that the norm shows it.
  Value bound(Value value, double limit) {
    Value low = splat(value, -limit);
    // Maximum and minimum return NaN if either side is one.
    Value above = nn::MaximumOp::create(builder, loc, value, low);
    Value high = splat(value, limit);
    return nn::MinimumOp::create(builder, loc, above, high);
  }

  Value scale(Value value, double factor) {
    Value factors = splat(value, factor);
    return nn::MulOp::create(builder, loc, value, factors);
  }

  // The number of microbatches is known when the program starts.
  Value average(Value value) {
    auto type = RankedTensorType::get({}, builder.getF32Type());
    Value weight = fsdp::MicrobatchWeightOp::create(builder, loc, type);
    ArrayRef<int64_t> shape = nn::shapeOf(value);
    SmallVector<int64_t> ones(shape.size(), 1);
    Value single = nn::reshapeTo(builder, loc, weight, ones);
    Value weights = nn::broadcastTo(builder, loc, single, shape);
    return nn::MulOp::create(builder, loc, value, weights);
  }

  // Comparing with infinity is false for NaN too. The largest element of the
  // mask says whether any was replaced.
  Value zeroNonfinite(Value value) {
    Value size = nn::AbsOp::create(builder, loc, value);
    Value limit = splat(value, std::numeric_limits<double>::infinity());
    auto type = RankedTensorType::get(nn::shapeOf(value), builder.getI1Type());
    Value finite =
        nn::CmpOp::create(builder, loc, type, nn::Predicate::lt, size, limit);
    Value zero = splat(value, 0), one = splat(value, 1);
    Value mask = nn::SelectOp::create(builder, loc, finite, zero, one);
    // Over all axes: a scalar reaches the report however large the gradient.
    SmallVector<int64_t> axes =
        llvm::to_vector(llvm::seq<int64_t>(nn::shapeOf(value).size()));
    Value any = nn::reduceAlong(builder, loc, nn::ReduceKind::max, mask, axes);
    Value scalar = nn::reshapeTo(builder, loc, any, {});
    fsdp::ReportZeroedOp::create(builder, loc, scalar);
    return nn::SelectOp::create(builder, loc, finite, value, zero);
  }

  // The flat gradient in rows of `block` elements, the last filled with zeros.
  // Blocks begin at the parameter's first element and never span two
  // parameters, so a block does not depend on the layout or on the ranks.
  Value toBlocks(Value value, int64_t block) {
    int64_t count = nn::tensorType(value).getNumElements(),
            rows = llvm::divideCeil(count, block);
    Value flat = nn::reshapeTo(builder, loc, value, {count});
    if (count != rows * block) {
      auto type = RankedTensorType::get({rows * block}, builder.getF32Type());
      flat = nn::PadOp::create(builder, loc, type, flat, ArrayRef<int64_t>{0},
                               ArrayRef<int64_t>{1});
    }
    return nn::reshapeTo(builder, loc, flat, {rows, block});
  }

  Value fromBlocks(Value blocks, ArrayRef<int64_t> shape) {
    int64_t all = nn::tensorType(blocks).getNumElements(),
            count = llvm::product_of(shape);
    Value flat = nn::reshapeTo(builder, loc, blocks, {all});
    if (count != all) {
      auto type = RankedTensorType::get({count}, builder.getF32Type());
      flat = nn::SliceOp::create(builder, loc, type, flat, ArrayRef<int64_t>{0},
                                 ArrayRef<int64_t>{1});
    }
    return nn::reshapeTo(builder, loc, flat, shape);
  }

  // Rounds each element to a multiple of the largest one of its block over 127,
  // as the integers of ZeRO++ (Wang et al., 2023) with symmetric blocks. A
  // block of zeros is divided by the smallest normal number.
  Value quantize(Value value, int64_t block) {
    Value blocks = toBlocks(value, block);
    Value sizes = nn::AbsOp::create(builder, loc, blocks);
    Value largest =
        nn::reduceAlong(builder, loc, nn::ReduceKind::max, sizes, {1});
    Value step = scale(largest, 1.0 / 127);
    // Otherwise 0 / 0 would make a NaN of each element of such a block.
    Value least = splat(step, std::numeric_limits<float>::min());
    step = nn::MaximumOp::create(builder, loc, step, least);
    Value steps = nn::broadcastTo(builder, loc, step, nn::shapeOf(blocks));
    Value ratios = nn::DivOp::create(builder, loc, blocks, steps);
    Value integers = nn::RoundOp::create(builder, loc, ratios);
    Value rounded = nn::MulOp::create(builder, loc, integers, steps);
    return fromBlocks(rounded, nn::shapeOf(value));
  }

  // Copies the user's ops, with the gradient's shape in place of one element.
  Value inlined(func::FuncOp program, Value value) {
    ArrayRef<int64_t> shape = nn::shapeOf(value);
    Block &body = program.front();
    IRMapping mapping;
    mapping.map(body.getArgument(0), value);
    for (Operation &op : body.without_terminator()) {
      Operation *copy = builder.clone(op, mapping);
      auto type = llvm::cast<RankedTensorType>(op.getResult(0).getType());
      type = RankedTensorType::get(shape, type.getElementType());
      if (auto constant = dyn_cast<nn::ConstantOp>(copy)) {
        auto elements = llvm::cast<DenseElementsAttr>(constant.getValueAttr());
        // A constant of one element is a splat already.
        constant.setValueAttr(elements.resizeSplat(type));
      }
      copy->getResult(0).setType(type);
    }
    return mapping.lookup(body.getTerminator()->getOperand(0));
  }
};

} // namespace

Value buildHook(OpBuilder &builder, Location loc, const ReduceHook &hook,
                func::FuncOp program, Value gradient) {
  HookBuilder build{builder, loc};
  switch (hook.kind) {
  case ReduceHook::Kind::Cast:
    return build.cast(gradient, hook.type);
  case ReduceHook::Kind::ClipValue:
    return build.bound(gradient, hook.number);
  case ReduceHook::Kind::Predivide:
    return build.scale(gradient, 1 / hook.number);
  case ReduceHook::Kind::AverageBefore:
    return build.average(gradient);
  case ReduceHook::Kind::AverageAfter:
    // Averaging after the reduction is a factor of the update.
    return gradient;
  case ReduceHook::Kind::Compress:
    // The reduction itself does it, as the layout says.
    return gradient;
  case ReduceHook::Kind::ZeroNonfinite:
    return build.zeroNonfinite(gradient);
  case ReduceHook::Kind::Quantize:
    return build.quantize(gradient, hook.block);
  case ReduceHook::Kind::Program:
    return build.inlined(program, gradient);
  }
  llvm_unreachable("covered above");
}

} // namespace fsdpc::passes

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Expands ops that would need two kernels, so that grouping sees both. Losses
// reduce over classes and then over rows; gradients of biases sum over all
// rows, which as one reduction could not join the kernel that computes these
// rows. A concat of very many tensors becomes a tree of concats, since the
// index arithmetic of a kernel distinguishes all of them.
#include "passes/kernels/ExpandForGrouping.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/NormOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/options/Options.h"
#include "passes/kernels/Inherit.h"

#include <algorithm>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// Replaces an op with the ops that `build` makes in front of it. They take over
// its unit and direction.
void expand(Operation *op,
            llvm::function_ref<SmallVector<Value>(OpBuilder &)> build) {
  Operation *before = op->getPrevNode();
  OpBuilder builder(op);
  SmallVector<Value> results = build(builder);
  inheritAttributes(before, op);
  op->replaceAllUsesWith(results);
  op->erase();
}

// A loss reduces each row, then sums over rows: two domains, and so two
// kernels, which grouping finds once the composite is expanded.
void expandLosses(func::FuncOp function) {
  for (nn::CrossEntropyOp loss :
       llvm::to_vector(function.getOps<nn::CrossEntropyOp>()))
    expand(loss, [&](OpBuilder &builder) { return loss.decompose(builder); });
}

// The rows of a block keep a block of columns in the first cache, and leave few
// blocks to add afterwards. On a GPU a block of threads takes a block of rows,
// so there are fewer rows if that gives each of some 130 multiprocessors four
// blocks. The number does not depend on which GPU it is, since it decides the
// order of a sum.
constexpr int64_t kFewestRows = 16, kMostRows = 64, kGpuBlocks = 512;

// Returns the number of rows per block in which `count` rows are added up, or 0
// if the count has no suitable divisor: the largest one up to the wanted
// number, or else the next above.
int64_t rowsPerBlock(int64_t count, bool onGpu) {
  int64_t wanted = onGpu
                       ? std::clamp(count / kGpuBlocks, kFewestRows, kMostRows)
                       : kMostRows;
  for (int64_t rows = std::min(count, wanted); rows >= kFewestRows; --rows)
    if (count % rows == 0)
      return rows;
  for (int64_t rows = wanted + 1; rows <= std::min(count, kMostRows); ++rows)
    if (count % rows == 0)
      return rows;
  return 0;
}

// Shorter rows are not worth loops of their own.
constexpr int64_t kFewestColumns = 16;

// Splits a sum over rows into sums over blocks of rows, which join other
// kernels, and a short sum over the blocks.
void splitRowSum(nn::ReduceOp op, bool onGpu) {
  auto type = op.getInput().getType();
  Type element = type.getElementType();
  // Only sums over all axes but the last have rows to be split: the input then
  // is a matrix of rows × columns, whatever its rank. A scalar has no last
  // axis.
  int64_t last = type.getRank() - 1;
  bool leading = last >= 0 &&
                 static_cast<int64_t>(op.getAxes().size()) == last &&
                 !llvm::is_contained(op.getAxes(), last);
  if (!leading || op.getKind() != nn::ReduceKind::sum ||
      !isa<FloatType>(element))
    return;
  int64_t columns = type.getDimSize(last);
  if (columns < kFewestColumns)
    return;
  int64_t rows = type.getNumElements() / columns;
  int64_t perBlock = rowsPerBlock(rows, onGpu);
  if (!perBlock)
    return;
  bool isCuda =
      fsdp::CompileOptions::of(op->getParentOfType<ModuleOp>()).isCuda();
  expand(op, [&](OpBuilder &builder) {
    Location loc = op.getLoc();
    // Partial sums are kept in f32 even for bf16 and f16, or their rounding
    // would grow with the number of blocks.
    Type wide = element.isF64() ? element : builder.getF32Type();
    auto shaped = [&](ArrayRef<int64_t> shape) {
      return RankedTensorType::get(shape, wide);
    };
    Value value = op.getInput();
    if (element != wide)
      value = nn::CastOp::create(builder, loc, type.clone(wide), value);
    value = nn::ReshapeOp::create(
        builder, loc, shaped({rows / perBlock, perBlock, columns}), value);
    value = nn::ReduceOp::create(
        builder, loc, shaped({rows / perBlock, 1, columns}),
        nn::ReduceKind::sum, value, ArrayRef<int64_t>{1});
    if (rows > perBlock)
      value = nn::ReduceOp::create(builder, loc, shaped({1, 1, columns}),
                                   nn::ReduceKind::sum, value,
                                   ArrayRef<int64_t>{0});
    if (element != wide)
      value = nn::CastOp::create(
          builder, loc, RankedTensorType::get({1, 1, columns}, element), value);
    // A reshape that changes nothing keeps what follows out of the kernel. On
    // the host it stays, since tables of schedules count ops.
    if (isCuda && value.getType() == op.getType())
      return SmallVector<Value>{value};
    return SmallVector<Value>{
        nn::ReshapeOp::create(builder, loc, op.getType(), value)};
  });
}

// Splits the gradients of biases and of the weights of norms. The latter are
// decomposed first, which turns them into sums over rows. They stay composites
// if their rows cannot be split into blocks.
void splitRowSums(func::FuncOp function) {
  // The emulation keeps the host's sums.
  bool onGpu =
      fsdp::CompileOptions::of(function->getParentOfType<ModuleOp>()).target ==
      fsdp::Target::Cuda;
  for (nn::NormWeightGradOp op :
       llvm::to_vector(function.getOps<nn::NormWeightGradOp>())) {
    int64_t rows =
        llvm::product_of(op.getInput().getType().getShape().drop_back());
    if (rowsPerBlock(rows, onGpu))
      expand(op, [&](OpBuilder &builder) { return op.decompose(builder); });
  }
  for (nn::ReduceOp op : llvm::to_vector(function.getOps<nn::ReduceOp>()))
    splitRowSum(op, onGpu);
}

// A concat of more tensors than this is cut. The copies between the levels of
// the tree disappear where the parts can be written in place.
constexpr size_t kMostParts = 64;

SmallVector<Value> concatInParts(OpBuilder &builder, nn::ConcatOp op) {
  SmallVector<Value> values(op.getInputs());
  int64_t axis = op.getAxis();
  // Each pass joins up to kMostParts neighbours, so the depth is logarithmic in
  // the number of tensors.
  while (values.size() > 1) {
    SmallVector<Value> joined;
    for (size_t begin = 0; begin < values.size(); begin += kMostParts) {
      auto parts = ArrayRef(values).slice(
          begin, std::min(kMostParts, values.size() - begin));
      SmallVector<int64_t> shape(nn::shapeOf(parts.front()));
      shape[axis] = 0;
      for (Value part : parts)
        shape[axis] += nn::shapeOf(part)[axis];
      joined.push_back(parts.size() == 1
                           ? parts.front()
                           : nn::ConcatOp::create(builder, op.getLoc(),
                                                  op.getType().clone(shape),
                                                  parts, axis));
    }
    values = joined;
  }
  return values;
}

void splitConcats(func::FuncOp function) {
  for (nn::ConcatOp op : llvm::to_vector(function.getOps<nn::ConcatOp>()))
    if (op.getInputs().size() > kMostParts)
      expand(op,
             [&](OpBuilder &builder) { return concatInParts(builder, op); });
}

} // namespace

void fsdpc::passes::expandForGrouping(func::FuncOp function) {
  splitConcats(function);
  expandLosses(function);
  splitRowSums(function);
}

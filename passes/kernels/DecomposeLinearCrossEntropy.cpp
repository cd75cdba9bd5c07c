// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// decompose-linear-cross-entropy: replaces the loss and its gradients with
// products and row kernels on blocks of rows, so that the logits never exist as
// a whole (Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models,
// 2024).
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/DecomposeRows.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/options/Options.h"
#include "passes/kernels/Inherit.h"
#include "passes/kernels/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <limits>

namespace fsdpc::passes {
#define GEN_PASS_DEF_DECOMPOSELINEARCROSSENTROPY
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// The size of a block of logits, in bytes. There are at least as many rows as
// keep products fast: each block reads the weight and adds to its gradient
// once. On a GPU this costs a larger part of the time, since its products are
// closer to the speed of its memory, hence the larger blocks.
constexpr int64_t kHostBlockBytes = int64_t(64) << 20;
constexpr int64_t kCudaBlockBytes = int64_t(256) << 20;
constexpr int64_t kLeastRows = 128;

// Returns the rows of a block. A size that divides all rows is preferred, since
// blocks of equal size share one kernel.
int64_t rowsOfBlock(int64_t rows, int64_t bytesPerRow, int64_t blockBytes) {
  // Blocks have a multiple of 64 rows. Sizes down to half of the target are
  // tried before an unequal last block is accepted.
  int64_t most = std::max(blockBytes / bytesPerRow / 64 * 64, kLeastRows);
  for (int64_t size = most; size >= std::max(most / 2, kLeastRows); size -= 64)
    if (rows % size == 0)
      return size;
  return std::min(rows, most);
}

// Returns the columns of the logits. On a GPU their rows begin at multiples of
// 128 bytes in bf16, so that products move whole tiles (TMA takes multiples of
// 16 bytes) and kernels vectors. It costs a copy of the weight, and the
// padding's share of the products: few classes are padded to 16 bytes only.
int64_t columnsOf(int64_t classes, bool onGpu) {
  constexpr int64_t wide = 64, narrow = 8, leastShare = 8;
  for (int64_t multiple : {wide, narrow}) {
    int64_t padded = llvm::alignTo(classes, multiple);
    if (onGpu && (padded - classes) * leastShare <= classes)
      return padded;
  }
  return classes;
}

// Builds the blocks of one loss in front of it. `b` computes in f32 (enter,
// leave), products compute in the type of the input.
class LossBuilder {
public:
  LossBuilder(nn::LinearCrossEntropyOp op, bool onGpu)
      : op(op), blockBytes(onGpu ? kCudaBlockBytes : kHostBlockBytes),
        sumsWide(onGpu), builder(op), b(builder, op.getLoc()),
        input(nn::tensorType(op.getInput())),
        statistics(nn::tensorType(op.getLoss())), rows(input.getDimSize(0)),
        classAxis(op.getTransposeWeight() ? 0 : 1),
        classes(nn::shapeOf(op.getWeight())[classAxis]),
        columns(columnsOf(classes, onGpu)),
        weight(padded(op.getWeight(), classAxis)), bias(paddedBias()),
        gradient(nn::tensorType(weight)) {}

  void run();

private:
  // Returns the rows [begin, begin + count) of a value.
  Value block(Value value, int64_t begin, int64_t count) {
    SmallVector<int64_t> shape(nn::shapeOf(value)), offsets(shape.size(), 0),
        strides(shape.size(), 1);
    // The only block needs no slice.
    if (count == shape[0])
      return value;
    shape[0] = count;
    offsets[0] = begin;
    return nn::SliceOp::create(builder, op.getLoc(),
                               nn::tensorType(value).clone(shape), value,
                               offsets, strides);
  }
  // Returns the value with zeros from the last class up to the last column.
  Value padded(Value value, int64_t axis) {
    if (columns == classes)
      return value;
    SmallVector<int64_t> shape(nn::shapeOf(value));
    SmallVector<int64_t> offsets(shape.size(), 0), strides(shape.size(), 1);
    shape[axis] = columns;
    return nn::PadOp::create(builder, op.getLoc(),
                             nn::tensorType(value).clone(shape), value, offsets,
                             strides);
  }
  // Returns the bias of all columns, null if there is none. In the padding it
  // is -∞, so that those logits have no share in a loss and gradients of 0.
  Value paddedBias() {
    Value bias = op.getBias();
    if (columns == classes)
      return bias;
    auto type = RankedTensorType::get({columns}, input.getElementType());
    Value number = b.iota(type.clone(builder.getI32Type()), 0);
    Value counts = b.compare(nn::Predicate::lt, number,
                             b.constant(number, double(classes)));
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return b.select(counts, bias ? padded(bias, 0) : b.constant(type, 0),
                    b.constant(type, -infinity));
  }
  // Returns the value without what padded() added, in memory of its own: a
  // gradient goes to its unit's buffer.
  Value unpadded(Value value, int64_t axis) {
    if (columns == classes)
      return value;
    SmallVector<int64_t> shape(nn::shapeOf(value));
    SmallVector<int64_t> offsets(shape.size(), 0), strides(shape.size(), 1);
    shape[axis] = classes;
    auto type = nn::tensorType(value).clone(shape);
    Value part = nn::SliceOp::create(builder, op.getLoc(), type, value, offsets,
                                     strides);
    return nn::CopyOp::create(builder, op.getLoc(), type, part);
  }
  Value join(ArrayRef<Value> blocks, RankedTensorType type) {
    return blocks.size() == 1
               ? blocks.front()
               : nn::ConcatOp::create(builder, op.getLoc(), type, blocks, 0)
                     .getResult();
  }
  // `accumulator` is added to the product, so gradients of the weight are
  // summed over blocks without another tensor.
  Value product(RankedTensorType type, Value x, Value y, bool transposeX,
                bool transposeY, Value accumulator = {}) {
    return nn::multiply(builder, op.getLoc(), type, x, y, transposeX,
                        transposeY, accumulator);
  }
  void addBlock(int64_t begin, int64_t count);

  nn::LinearCrossEntropyOp op;
  int64_t blockBytes;
  // The weight's gradient is summed over blocks in the type of statistics. On
  // the host, products in bf16 sum in f32 and round each block's result.
  bool sumsWide;
  OpBuilder builder;
  nn::DecomposeBuilder b;
  RankedTensorType input, statistics;
  // The logits have `columns` columns, of which the first `classes` count.
  int64_t rows, classAxis, classes, columns;
  Value weight, bias; // of that many columns
  RankedTensorType gradient;
  // They do not depend on the logits and are computed once for all rows.
  Value weights, factors; // of each row's loss and of its gradient, R elements
  // The loss of each block's rows, and the gradient of the input of each, in
  // order.
  SmallVector<Value> losses, dinputs;
  Value dweight, dbias;
};

// The op computes loss and gradients in one visit of the block, so its logits
// die before the next block's exist.
void LossBuilder::addBlock(int64_t begin, int64_t count) {
  bool transposed = op.getTransposeWeight();
  Value x = block(op.getInput(), begin, count);
  auto type = input.clone({count, columns});
  // The bias is added in f32 and the sum rounded once. One that only marks the
  // padding is a part of the product.
  Value marks = op.getBias() ? Value() : bias;
  Value logits = product(type, x, weight, false, transposed, marks);
  if (op.getBias())
    logits = b.leave(b.add(b.enter(logits), b.enter(bias)), type);

  auto row = nn::CrossEntropyRowsOp::create(
      builder, op.getLoc(), statistics.clone({count}), type, logits,
      block(op.getTargets(), begin, count), block(weights, begin, count),
      block(factors, begin, count));
  losses.push_back(row.getLosses());
  Value dlogits = row.getDlogits();

  // An unused gradient is that of a frozen parameter.
  if (!op.getDinput().use_empty())
    dinputs.push_back(product(input.clone({count, input.getDimSize(1)}),
                              dlogits, weight, false, !transposed));
  // The weight's gradient has the weight's layout, so a transposed weight
  // exchanges the operands.
  if (!op.getDweight().use_empty())
    dweight = transposed ? product(gradient, dlogits, x, true, false, dweight)
                         : product(gradient, x, dlogits, true, false, dweight);
  if (op.getBias() && !op.getDbias().use_empty()) {
    Value sum = b.reshape(b.sum(b.enter(dlogits), {0}), columns);
    dbias = dbias ? b.add(dbias, sum) : sum;
  }
}

void LossBuilder::run() {
  auto logits = statistics.clone({rows, classes});
  Value counts = nn::targetRows(b, logits, op.getTargets(), op.getWeights(),
                                op.getIgnoreIndex())
                     .weight;
  Value valid = b.sum(counts, {0});
  // The divisor follows from the reduction and must be known before any
  // gradient.
  Value divisor = nn::divisorOf(b, op.getReduction(), valid);
  weights = b.reshape(counts, {rows});
  Value factor = b.div(counts, divisor);
  if (op.getScale())
    factor = b.mul(factor, b.reshape(op.getScale(), {1, 1}));
  factors = b.reshape(factor, {rows});
  int64_t count =
      rowsOfBlock(rows, columns * nn::elementBytes(input), blockBytes);
  // One block needs no sum.
  if (sumsWide && count < rows)
    gradient = statistics.clone(gradient.getShape());
  for (int64_t begin = 0; begin < rows; begin += count)
    addBlock(begin, std::min(count, rows - begin));

  Value loss = b.sum(join(losses, statistics.clone({rows})), {0});
  op.getLoss().replaceAllUsesWith(b.leave(b.div(loss, divisor), statistics));
  op.getValid().replaceAllUsesWith(b.leave(valid, statistics));
  if (!dinputs.empty())
    op.getDinput().replaceAllUsesWith(join(dinputs, input));
  if (dweight)
    op.getDweight().replaceAllUsesWith(
        b.leave(unpadded(dweight, classAxis), op.getDweight().getType()));
  if (dbias)
    op.getDbias().replaceAllUsesWith(
        b.leave(unpadded(dbias, 0), op.getDbias().getType()));
}

struct DecomposeLinearCrossEntropy
    : fsdpc::passes::impl::DecomposeLinearCrossEntropyBase<
          DecomposeLinearCrossEntropy> {
  void runOnOperation() override {
    bool onGpu = fsdp::CompileOptions::of(getOperation()).isCuda();
    bool changed = false;
    getOperation().walk([&](nn::LinearCrossEntropyOp op) {
      changed = true;
      Operation *before = op->getPrevNode();
      LossBuilder(op, onGpu).run();
      inheritAttributes(before, op);
      op->erase();
    });
    if (!changed)
      markAllAnalysesPreserved();
  }
};

} // namespace

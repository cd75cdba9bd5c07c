// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The gradient of a value that is split into slices. The cotangent of each part
// is a tensor of zeros around it; if the parts cover the whole, their
// concatenation is the same without the zeros and the additions.
#include "passes/grad/SliceGradients.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;

namespace fsdpc::passes {

/// Collects the padded parts that `sum` adds. Fails if it adds anything else.
/// A sum may have as many terms as a model has slices, so this is a loop.
static LogicalResult collectParts(Value sum,
                                  SmallVectorImpl<nn::PadOp> &parts) {
  SmallVector<Value> terms = {sum};
  while (!terms.empty()) {
    Value term = terms.pop_back_val();
    if (auto pad = term.getDefiningOp<nn::PadOp>()) {
      parts.push_back(pad);
      continue;
    }
    auto add = term.getDefiningOp<nn::AddOp>();
    if (!add)
      return failure();
    terms.append({add.getLhs(), add.getRhs()});
  }
  return success();
}

/// Returns the only axis along which the part is smaller than the whole, or -1.
static int64_t axisOf(nn::PadOp part) {
  ArrayRef<int64_t> sizes = nn::shapeOf(part.getInput()),
                    whole = nn::shapeOf(part.getResult());
  int64_t axis = -1;
  for (int64_t i = 0, rank = sizes.size(); i < rank; ++i) {
    if (part.getStrides()[i] != 1)
      return -1;
    if (sizes[i] == whole[i])
      continue;
    if (axis != -1)
      return -1;
    axis = i;
  }
  return axis;
}

// The parts are sorted by offset and must follow each other without gaps or
// overlap. Anything else keeps the sum, which is correct in all cases. Returns
// `sum` itself if the parts do not make up the whole.
static Value concatParts(OpBuilder &builder, Value sum) {
  SmallVector<nn::PadOp> parts;
  if (failed(collectParts(sum, parts)))
    return sum;
  int64_t axis = axisOf(parts.front());
  if (axis < 0 ||
      llvm::any_of(parts, [&](nn::PadOp part) { return axisOf(part) != axis; }))
    return sum;
  llvm::stable_sort(parts, [&](nn::PadOp a, nn::PadOp b) {
    return a.getOffsets()[axis] < b.getOffsets()[axis];
  });
  int64_t end = 0;
  SmallVector<Value> values;
  for (nn::PadOp part : parts) {
    if (part.getOffsets()[axis] != end)
      return sum;
    end += nn::shapeOf(part.getInput())[axis];
    values.push_back(part.getInput());
  }
  if (end != nn::shapeOf(sum)[axis])
    return sum;
  return nn::ConcatOp::create(builder, sum.getLoc(), sum.getType(), values,
                              axis);
}

// Failures are remembered: the gradient of many values may be one long sum, and
// each of them would collect all of its terms.
Value SliceGradients::concat(OpBuilder &builder, Value sum) {
  if (!sum.getDefiningOp<nn::AddOp>() || others.contains(sum))
    return sum;
  Value result = concatParts(builder, sum);
  if (result == sum)
    others.insert(sum);
  return result;
}

} // namespace fsdpc::passes

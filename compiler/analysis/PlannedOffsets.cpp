// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the offsets that `plan-memory` has written as `fsdp.offsets`.
#include "compiler/analysis/Slots.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;

std::optional<int64_t> fsdpc::analysis::plannedOffset(Operation *op,
                                                      unsigned result) {
  auto offsets =
      op->getAttrOfType<DenseI64ArrayAttr>(fsdp::FSDPDialect::kOffsetsAttr);
  // A dump may have been edited: a list of the wrong length is as good as none,
  // and verify-memory reports it.
  if (!offsets || static_cast<unsigned>(offsets.size()) != offsetCount(op))
    return std::nullopt;
  return offsets[result];
}

// A reshape has no memory of its own and carries no offsets, so the op in front
// of it answers.
static std::optional<int64_t> plannedOffset(Value value) {
  while (auto reshape = value.getDefiningOp<nn::ReshapeOp>())
    value = reshape.getInput();
  auto result = dyn_cast<OpResult>(value);
  return result ? fsdpc::analysis::plannedOffset(result.getOwner(),
                                                 result.getResultNumber())
                : std::nullopt;
}

// Two values without an offset count as tied.
bool fsdpc::analysis::isPlannedTie(OpResult result, Value operand) {
  return ::plannedOffset(result) == ::plannedOffset(operand);
}

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the segments of a function: runs of ops of one unit and direction.
#include "passes/collectives/Segments.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/Strided.h"

using namespace mlir;

namespace fsdpc::passes {

FlatSymbolRefAttr getUnit(Operation *op) {
  return op->getAttrOfType<FlatSymbolRefAttr>(fsdp::FSDPDialect::kUnitAttr);
}

// Follows the chain to its end: the alias of an alias counts too.
bool isWeightAlias(Operation *op) {
  // A strided op has no memory of its own either: a library reads through it.
  auto readsThrough = [](Operation *op) {
    return nn::isView(op) || (nn::isStrided(op) && op->getNumOperands() == 1);
  };
  while (op && readsThrough(op))
    op = op->getOperand(0).getDefiningOp();
  return op && op->hasTrait<fsdp::HoldsWeights>();
}

bool readsWeights(Operation *op) {
  return !isWeightAlias(op) &&
         llvm::any_of(op->getOperands(), [](Value operand) {
           return isWeightAlias(operand.getDefiningOp());
         });
}

SmallVector<Segment> findSegments(Block &body) {
  using Key = std::pair<Attribute, bool>;
  auto keyOf = [](Operation *op) {
    return Key(getUnit(op), op->hasAttr(fsdp::FSDPDialect::kBackwardAttr));
  };
  // Views, constants and loads have no place of their own. They would begin
  // segments of units whose work has not begun.
  SmallVector<Operation *> ops;
  for (Operation &op : body.without_terminator())
    if (getUnit(&op) && !isWeightAlias(&op) && op.getNumOperands() != 0)
      ops.push_back(&op);

  // For each op, the key of the first op at or after it that reads weights. The
  // key behind the last op is null: no reader follows.
  SmallVector<Key> next(ops.size() + 1);
  for (size_t i = ops.size(); i-- > 0;)
    next[i] = readsWeights(ops[i]) ? keyOf(ops[i]) : next[i + 1];

  SmallVector<Segment> segments;
  Key current;
  for (auto [i, op] : llvm::enumerate(ops)) {
    Key key = keyOf(op);
    // A segment begins at an op of another unit or direction if the next reader
    // of weights is of that one as well, or if none follows. Any other op joins
    // the open segment.
    bool ofNext = !next[i].first || key == next[i];
    if (!current.first || (key != current && next[i] != current && ofNext)) {
      segments.push_back({getUnit(op), key.second, op, op});
      current = key;
    } else {
      segments.back().last = op;
    }
  }
  return segments;
}

void copyPlace(Operation *from, Operation *to) {
  for (StringRef name :
       {fsdp::FSDPDialect::kUnitAttr, fsdp::FSDPDialect::kBackwardAttr})
    if (Attribute attr = from->getAttr(name))
      to->setAttr(name, attr);
    else
      to->removeAttr(name);
}

} // namespace fsdpc::passes

// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// delay-gradients: moves what computes a parameter's gradient down, as far as
// its operands are in memory anyway. A unit's gradients lie in one flat buffer
// (fsdp.pack), which is occupied from the first of them on. A bias's gradient
// that is computed as soon as its cotangent is there would hold the whole
// buffer while the unit's weights are still gathered. Below the product that
// reads the weights last, it can share their memory.
#include "passes/collectives/Passes.h"
#include "passes/collectives/Segments.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/nn/Build.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_DELAYGRADIENTS
#include "passes/collectives/Passes.h.inc"

using namespace mlir;
using fsdp::FSDPDialect;

namespace {

class Delay {
public:
  // One scan: views come after what they view, so `owner` always leads to the
  // memory itself.
  explicit Delay(Block &body) {
    for (Operation &op : body) {
      position[&op] = order.size();
      order.push_back(&op);
      for (Value operand : op.getOperands())
        lastReader[viewed(operand)] = &op;
      if (nn::isView(&op))
        owner[op.getResult(0)] = viewed(op.getOperand(0));
    }
  }

  // Goes backwards, so that what becomes of an op's readers is known. Ops that
  // move to one place keep their order.
  int64_t run() {
    SmallVector<Operation *> moving;
    for (Operation *op : llvm::reverse(order)) {
      if (isa<fsdp::PackOp>(op))
        nextPack[getUnit(op)] = op;
      if (!isGradient(op))
        continue;
      gradients.insert(op);
      if (Operation *end = target(op)) {
        destination[op] = end;
        moving.push_back(op);
      }
    }
    for (Operation *op : llvm::reverse(moving))
      op->moveBefore(destination.lookup(op));
    return moving.size();
  }

private:
  // The value that owns the memory of `value`.
  Value viewed(Value value) const {
    auto found = owner.find(value);
    return found == owner.end() ? value : found->second;
  }

  // Returns true if only packs read the results, perhaps through views.
  bool isGradient(Operation *op) const {
    return !op->use_empty() &&
           llvm::all_of(op->getUsers(), [&](Operation *user) {
             return isa<fsdp::PackOp>(user) ||
                    (nn::isView(user) && gradients.contains(user));
           });
  }

  // Returns the op of its unit before which a gradient can stand, or null if it
  // stays where it is.
  Operation *target(Operation *op) const {
    if (!getUnit(op) || !isMemoryEffectFree(op))
      return nullptr;
    // Packs of a unit's layouts stand together, so that they share a reduction.
    Operation *end = nextPack.lookup(getUnit(op));
    for (Operation *user : op->getUsers())
      end = earlier(end, user);
    // A view has no memory. Anything else stays above the last reader of each
    // operand, so that no operand lives longer.
    if (!nn::isView(op))
      for (Value operand : op->getOperands())
        if (operand.getDefiningOp())
          end = earlier(end, lastReader.lookup(viewed(operand)));
    bool sameUnit = getUnit(end) == getUnit(op) &&
                    end->hasAttr(FSDPDialect::kBackwardAttr) ==
                        op->hasAttr(FSDPDialect::kBackwardAttr);
    bool further = position.lookup(end) > position.lookup(op) + 1;
    return sameUnit && further ? end : nullptr;
  }

  // The earlier of `a` (may be null) and the place where `b` will stand.
  Operation *earlier(Operation *a, Operation *b) const {
    if (Operation *moved = destination.lookup(b))
      b = moved;
    return !a || position.lookup(b) < position.lookup(a) ? b : a;
  }

  SmallVector<Operation *> order;
  DenseMap<Operation *, int64_t> position; // before the pass
  DenseMap<Value, Value> owner;            // of a view's memory
  DenseMap<Value, Operation *> lastReader; // of the memory, before the pass
  // Collected from the ops that run() has passed: gradients, the ops that stay
  // and before which gradients will stand, and the first pack of each unit.
  DenseSet<Operation *> gradients;
  DenseMap<Operation *, Operation *> destination;
  DenseMap<Attribute, Operation *> nextPack;
};

struct DelayGradients
    : fsdpc::passes::impl::DelayGradientsBase<DelayGradients> {
  void runOnOperation() override {
    auto function =
        getOperation().lookupSymbol<func::FuncOp>(FSDPDialect::kMicrobatch);
    int64_t count = function ? Delay(function.getBody().front()).run() : 0;
    if (count == 0)
      markAllAnalysesPreserved();
    moved += count;
  }
};

} // namespace
} // namespace fsdpc::passes
